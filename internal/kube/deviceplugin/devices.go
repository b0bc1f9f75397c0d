package deviceplugin

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Device is a device file of the node.
type Device struct {
	Path     string // on the node and in containers, absolute
	Optional bool   // containers also start without it
}

// host looks at the node's device files.
type host struct {
	root    string // the node's root folder in the plugin's container; "/" without a container
	devices []Device
}

// missing returns the error of a required device that is not there, or nil.
func (h host) missing() error {
	for _, d := range h.devices {
		if err := h.check(d.Path); err != nil && !d.Optional {
			return err
		}
	}
	return nil
}

// check returns an error unless path is a character device of the node.
func (h host) check(path string) error {
	info, err := os.Stat(filepath.Join(h.root, path))
	if err != nil {
		return fmt.Errorf("%s is not on this node: %w", path, err)
	}
	if info.Mode()&os.ModeCharDevice == 0 {
		return fmt.Errorf("%s is not a character device", path)
	}
	return nil
}

// specs returns the present devices for a container.
func (h host) specs() (out []*api.DeviceSpec) {
	for _, d := range h.devices {
		if h.check(d.Path) == nil {
			out = append(out, &api.DeviceSpec{ContainerPath: d.Path, HostPath: d.Path, Permissions: "rw"})
		}
	}
	return out
}

// list returns the units of the resource, all healthy or all unhealthy.
func list(count int, healthy bool) *api.ListAndWatchResponse {
	state := api.Unhealthy
	if healthy {
		state = api.Healthy
	}
	r := &api.ListAndWatchResponse{}
	for i := range count {
		r.Devices = append(r.Devices, &api.Device{ID: strconv.Itoa(i), Health: state})
	}
	return r
}
