package ociimage

import (
	"slices"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/leaf/healthcheck"
	"github.com/forkd/forkd/internal/leaf/initprogram"
)

// Limits of the wait for a service, in seconds.
const (
	minReadySecs = 60
	maxReadySecs = 600
)

// initLimit is the time for the start of an init's services, on a busy host.
const initLimit = 300

// Service returns the image's program as a command line for its shell, and the condition for its readiness: the
// health check, otherwise the lowest exposed TCP port, otherwise for an init that its system is up, otherwise nil.
func (i *Image) Service() (start string, ready *image.Ready, err error) {
	c := i.Config
	program := slices.Concat(c.Entrypoint, c.Cmd)
	if len(program) == 0 {
		return "", nil, invalid("it has neither an entrypoint nor a command to start")
	}
	ready, err = readyOf(c)
	if up := initprogram.Ready(program); ready == nil && up != nil {
		ready = &image.Ready{Command: commandLine(up), TimeoutSecs: initLimit}
	}
	return "exec " + commandLine(initprogram.Command(program)), ready, err
}

func readyOf(c Config) (*image.Ready, error) {
	if h := c.Healthcheck; h != nil {
		check, err := healthcheck.Resolve(healthcheck.Declared(*h), []string{"sh", "-c"})
		switch {
		case err != nil:
			return nil, invalid("%w", err)
		case check != nil && h.Test[0] == "CMD-SHELL":
			return &image.Ready{Command: h.Test[1], TimeoutSecs: patience(check)}, nil
		case check != nil:
			return &image.Ready{Command: commandLine(check.Command), TimeoutSecs: patience(check)}, nil
		}
	}
	if port := lowestPort(c.ExposedPorts); port > 0 {
		return &image.Ready{Port: port}, nil
	}
	return nil, nil
}

// patience returns the seconds after which Docker calls the service unhealthy, within our limits.
func patience(c *healthcheck.Check) int {
	return int(min(max(c.Patience().Seconds(), minReadySecs), maxReadySecs))
}

// lowestPort returns the lowest port in texts such as "80/tcp", or 0 if there is none.
func lowestPort(exposed []string) (lowest int) {
	for _, e := range exposed {
		text, protocol, _ := strings.Cut(e, "/")
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 || protocol != "" && protocol != "tcp" {
			continue
		}
		if lowest == 0 || int(port) < lowest {
			lowest = int(port)
		}
	}
	return lowest
}

// commandLine quotes arguments for a POSIX shell.
func commandLine(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
