package guest

import (
	"encoding/json"
	"fmt"
	"os"
)

// ConfigPath is the path of the Config in the initramfs.
const ConfigPath = "/etc/forkd/machine.json"

// Config is the host's configuration for the appliance's init.
type Config struct {
	// Hostname is the appliance's host name.
	Hostname string `json:"hostname"`
	// DataMount is the mount point of the data disk.
	DataMount string `json:"data_mount"`
	// IPv6 means that the host has an IPv6 route, so that the appliance gets one, too.
	IPv6 bool `json:"ipv6,omitempty"`
	// Services are started in order and restarted when they end.
	Services []Service `json:"services"`
}

// Service is one supervised program. If the program is missing, the service is skipped, so that a smaller
// appliance still boots.
type Service struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
	// Log is the file for its output. If empty, it is the console.
	Log string `json:"log,omitempty"`
	// OOMScore is written to oom_score_adj, so that an appliance without free memory loses a guest, not the
	// service that would report it.
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
