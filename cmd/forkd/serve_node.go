//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/api/routes/daemon"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/settings"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// nodeOptions name the node of a cluster on which the daemon runs.
type nodeOptions struct {
	name, uid string
}

func (o *nodeOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.name, "node-name", "",
		"add a key of the cluster's node `NAME` to the ids of new sandboxes (default: no key)")
	f.StringVar(&o.uid, "node-uid", "",
		"make the key from the node's `UID`, unique for all time, instead of its name")
}

// Kubernetes names nodes with a DNS subdomain. Its UIDs are UUIDs.
var (
	nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	nodeUID  = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
)

func (o *nodeOptions) complete() error {
	var wrong []error
	if o.name != "" && !nodeName.MatchString(o.name) {
		wrong = append(wrong, fmt.Errorf("--node-name is %q, want lowercase letters, digits, dots and dashes", o.name))
	}
	if o.uid != "" && !nodeUID.MatchString(o.uid) {
		wrong = append(wrong, fmt.Errorf("--node-uid is %q, want 1 to 64 letters, digits and dashes", o.uid))
	}
	if len(wrong) > 0 {
		return exit.UsageError{Err: errors.Join(wrong...)}
	}
	return nil
}

func (o *nodeOptions) configure(c *engine.Config) { c.NodeKey = o.key() }

// key returns the node's key, or an empty one without a node.
func (o *nodeOptions) key() sandbox.NodeKey {
	switch {
	case o.uid != "":
		return sandbox.NodeKeyOf(o.uid)
	case o.name != "":
		return sandbox.NodeKeyOf(o.name)
	}
	return ""
}

// facts returns the node as gateways see it. Facts that the host does not tell are left empty.
func (o *nodeOptions) facts(c engine.Config, log *slog.Logger) daemon.Node {
	n := daemon.Node{Name: o.name, UID: o.uid, Key: o.key(),
		ChildMemory: cmp.Or(c.ChildMemory, settings.DefaultChildMemory)}
	cpu, err := hostproc.ReadCPU()
	if err != nil {
		log.Debug("GET /v1/node lists no CPU features", "error", err)
	}
	n.CPU = api.NodeCPU{Vendor: cpu.Vendor, Features: cpu.Flags}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		n.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return n
}
