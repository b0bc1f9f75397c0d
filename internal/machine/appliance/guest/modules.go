package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ModulesDir holds the uncompressed modules and the file "order": one file name per line, dependencies first. The
// guest agent uses the same layout.
const ModulesDir = "/lib/modules/forkd"

// loadDevices loads the drivers needed for the boot to continue.
func (a *appliance) loadDevices() error {
	names, err := moduleOrder()
	if err != nil {
		return err
	}
	devices, _ := split(names, cpuFlags())
	return loadAll(devices, nil)
}

// loadRest loads KVM and the modules for sandboxes. KVM's initialization takes a second under emulation, so it
// runs while network and disk are being set up.
func (a *appliance) loadRest() error {
	names, err := moduleOrder()
	if err != nil {
		return err
	}
	flags := cpuFlags()
	_, rest := split(names, flags)
	return loadAll(rest, moduleOptions(flags))
}

func moduleOrder() ([]string, error) {
	b, err := os.ReadFile(filepath.Join(ModulesDir, "order"))
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(b)), nil
}

// split divides modules into drivers of the appliance's own devices and the rest; both keep their order. It drops
// KVM for another vendor's CPU.
func split(names, flags []string) (devices, rest []string) {
	for _, name := range names {
		switch {
		case name == "kvm-amd.ko" && !slices.Contains(flags, "svm"),
			name == "kvm-intel.ko" && !slices.Contains(flags, "vmx"):
		case strings.HasPrefix(name, "virtio") || strings.HasSuffix(name, "failover.ko"):
			devices = append(devices, name)
		default:
			rest = append(rest, name)
		}
	}
	return devices, rest
}

// moduleOptions returns module options by file name. AMD's CPUs need no protection for huge pages that are
// executed while their size changes. With it, every VM would have another thread.
func moduleOptions(flags []string) map[string]string {
	if slices.Contains(flags, "svm") {
		return map[string]string{"kvm.ko": "nx_huge_pages=never"}
	}
	return nil
}

// cpuFlags returns the first CPU's features.
func cpuFlags() []string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		if key, flags, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "flags" {
			return strings.Fields(flags)
		}
	}
	return nil
}

func loadAll(names []string, options map[string]string) error {
	var errs []error
	for _, name := range names {
		if err := loadModule(filepath.Join(ModulesDir, filepath.Base(name)), options[name]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func loadModule(path, options string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.FinitModule(int(f.Fd()), options, 0)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", filepath.Base(path), err)
	}
	return nil
}
