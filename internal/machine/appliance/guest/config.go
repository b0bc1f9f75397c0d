package guest

import (
	"encoding/json"
	"fmt"
	"os"
)

// ConfigPath is where the initramfs holds the Config.
const ConfigPath = "/etc/forkd/machine.json"

// Config is what the host tells the appliance's init.
type Config struct {
	// Hostname of the appliance.
	Hostname string `json:"hostname"`
	// DataMount is where the data disk is mounted.
	DataMount string `json:"data_mount"`
	// IPv6 says that the host has a route for it, so that the appliance gets one.
	IPv6 bool `json:"ipv6,omitempty"`
	// Services are started in order and restarted when they end.
	Services []Service `json:"services"`
}

// Service is one supervised program. It is skipped if its program is not there,
// so that a slimmer appliance still boots.
type Service struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
	// Log is the file that gets its output; empty means the console.
	Log string `json:"log,omitempty"`
	// OOMScore is written to oom_score_adj, so that a full appliance loses a
	// guest and not the service that would report it.
	OOMScore int `json:"oom_score,omitempty"`
}

func readConfig(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read config: %w", err)
	}
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return Config{}, fmt.Errorf("decode %s: %w", path, err)
	}
	return c, nil
}
