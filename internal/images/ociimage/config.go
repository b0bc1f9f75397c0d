package ociimage

import (
	"bytes"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Config holds the settings of an image's configuration for running programs.
type Config struct {
	Entrypoint   []string
	Cmd          []string
	Env          map[string]string
	User         string // name or number, with an optional :group; empty for root
	Workdir      string // clean absolute path
	ExposedPorts []string
	StopSignal   string
	Healthcheck  *Healthcheck
}

// Healthcheck is the command that checks a service, in Docker's form.
type Healthcheck struct {
	Test        []string
	Interval    time.Duration
	Timeout     time.Duration
	StartPeriod time.Duration
	Retries     int
}

const maxArgs = 1 << 20 // bytes of all settings, as the agent's limit of its metadata

// parseConfig decodes an image's configuration, and checks its platform and its number of layers.
func parseConfig(b []byte, layers int) (Config, []v1.Hash, error) {
	file, err := v1.ParseConfigFile(bytes.NewReader(b))
	if err != nil {
		return Config{}, nil, invalid("decode configuration: %w", err)
	}
	if file.OS != "linux" || file.Architecture != "amd64" {
		return Config{}, nil, platformError([]string{platformName(file.OS, file.Architecture, file.Variant)})
	}
	if n := len(file.RootFS.DiffIDs); n != layers {
		return Config{}, nil, invalid("the configuration names %d layers, and the manifest %d", n, layers)
	}
	for _, d := range file.RootFS.DiffIDs {
		if err := checkDigest(d); err != nil {
			return Config{}, nil, err
		}
	}
	c, err := newConfig(file.Config)
	return c, file.RootFS.DiffIDs, err
}

func newConfig(in v1.Config) (Config, error) {
	c := Config{
		Entrypoint: in.Entrypoint, Cmd: in.Cmd, Env: map[string]string{}, User: in.User,
		Workdir: path.Clean("/" + in.WorkingDir), StopSignal: in.StopSignal,
		ExposedPorts: slices.Sorted(maps.Keys(in.ExposedPorts)),
	}
	for _, kv := range in.Env {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			c.Env[k] = v
		}
	}
	if h := in.Healthcheck; h != nil {
		c.Healthcheck = &Healthcheck{h.Test, h.Interval, h.Timeout, h.StartPeriod, h.Retries}
	}
	all, err := json.Marshal(c)
	switch {
	case err != nil:
		return c, invalid("configuration: %w", err)
	case len(all) > maxArgs:
		return c, invalid("the configuration has %d bytes of settings, more than %d", len(all), maxArgs)
	case bytes.Contains(all, []byte(`\u0000`)):
		return c, invalid("the configuration has a zero byte in a setting")
	}
	return c, nil
}

func checkDigest(d v1.Hash) error {
	if d.Algorithm != "sha256" || len(d.Hex) != 64 || strings.Trim(d.Hex, "0123456789abcdef") != "" {
		return invalid("digest %.100q: want sha256 and 64 hexadecimal digits", d.String())
	}
	return nil
}
