package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/daemonlog"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/kube/deviceplugin"
)

// devicePluginOptions are the flags of forkd-kube device-plugin.
type devicePluginOptions struct {
	resource, dir, hostRoot string
	count                   int
	logs                    daemonlog.Flags
}

func newDevicePluginCommand() *cobra.Command {
	var o devicePluginOptions
	cmd := &cobra.Command{
		Use:   "device-plugin",
		Short: "Give containers the devices of the node, by the kubelet's plugin API",
		Long: "Give containers the devices of the node, by the kubelet's plugin API. A container that requests one\n" +
			"unit of the resource gets /dev/kvm, and /dev/net/tun and /dev/userfaultfd if the node has them. It\n" +
			"then needs no privileged mode. Without /dev/kvm the units are unhealthy.",
		Example: "  forkd-kube device-plugin",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *devicePluginOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.resource, "resource", "forkd.dev/kvm", "offer the devices as the resource `NAME`")
	f.IntVar(&o.count, "count", 8, "offer `N` units, one for each container with the devices")
	f.StringVar(&o.dir, "plugin-dir", "/var/lib/kubelet/device-plugins", "find the kubelet's socket in `DIR`")
	f.StringVar(&o.hostRoot, "host-root", "/", "look for the node's devices below `DIR`")
	o.logs.Add(f)
}

// resourceName is the form of an extended resource: a domain and a name.
var resourceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func (o *devicePluginOptions) complete() error {
	var wrong []error
	if !resourceName.MatchString(o.resource) {
		wrong = append(wrong, fmt.Errorf("--resource is %q, want DOMAIN/NAME, such as forkd.dev/kvm", o.resource))
	}
	if o.count < 1 || o.count > 1000 {
		wrong = append(wrong, fmt.Errorf("--count is %d, want 1 to 1000", o.count))
	}
	if len(wrong) > 0 {
		return exit.UsageError{Err: errors.Join(wrong...)}
	}
	return nil
}

func (o *devicePluginOptions) run(ctx context.Context) error {
	log, err := o.logs.Logger(os.Stderr)
	if err != nil {
		return err
	}
	return deviceplugin.Run(ctx, deviceplugin.Config{Resource: o.resource, Dir: o.dir, HostRoot: o.hostRoot,
		Devices: []deviceplugin.Device{{Path: "/dev/kvm"}, {Path: "/dev/net/tun", Optional: true},
			{Path: "/dev/userfaultfd", Optional: true}},
		Count: o.count, Every: 5 * time.Second, Log: log})
}
