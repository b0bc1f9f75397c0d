package appliance

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/forkd/forkd/internal/images/debtool"
	"github.com/forkd/forkd/internal/images/kernelpkg"
	"github.com/forkd/forkd/internal/machine/hostcap"
)

// Checks returns doctor's lines about the machine's requirements on this host. They check the same requirements
// as Start, in the same order.
func Checks(ctx context.Context) []hostcap.Check {
	qemu, qv := qemuCheck(ctx)
	kernel, release := kernelCheck(ctx)
	checks := []hostcap.Check{qemu, kernel}
	if qemu.Level == hostcap.OK && kernel.Level == hostcap.OK {
		checks = append(checks, versionsCheck(qv, release))
	}
	return append(checks, toolsCheck())
}

// Ready reports whether the machine can start according to the checks.
func Ready(checks []hostcap.Check) bool {
	for _, c := range checks {
		if c.Level == hostcap.Fail {
			return false
		}
	}
	return true
}

func qemuCheck(ctx context.Context) (hostcap.Check, version) {
	c := hostcap.Check{Name: "machine qemu", Level: hostcap.OK}
	path, v, err := findQEMU(ctx)
	if err != nil {
		c.Level, c.Detail, c.Do = hostcap.Fail, err.Error(), upgradeHint()
		return c, v
	}
	c.Detail = fmt.Sprintf("%s, version %s", path, v)
	return c, v
}

func kernelCheck(ctx context.Context) (hostcap.Check, string) {
	c := hostcap.Check{Name: "machine kernel", Level: hostcap.OK}
	if cache, err := newKernelCache(""); err == nil {
		if index, err := cache.index(); err == nil {
			c.Detail = index.Release + ", unpacked"
			return c, index.Release
		}
	}
	found, err := kernelpkg.Find(ctx, debtool.Run, "")
	if err != nil {
		c.Level, c.Detail, c.Do = hostcap.Fail, err.Error(), debtool.Installer()
		return c, ""
	}
	c.Detail = found.Package + ", fetched at the first start"
	return c, found.Version
}

func versionsCheck(qemu version, release string) hostcap.Check {
	c := hostcap.Check{Name: "machine versions", Level: hostcap.OK}
	kernel, err := parseVersion(release)
	if err == nil {
		var cpus int
		accel := chooseAccel()
		if cpus, err = checkVersions(qemu, kernel, accel, maxDefaultCPUs); err == nil && cpus < maxDefaultCPUs {
			c.Level = hostcap.Note
			c.Detail = fmt.Sprintf("QEMU %s with kernel %s: one CPU only", qemu, kernel)
			c.Do = upgradeHint()
			return c
		}
		c.Detail = fmt.Sprintf("QEMU %s runs kernel %s (%s)", qemu, kernel, accel)
	}
	if err != nil {
		c.Level, c.Detail, c.Do = hostcap.Fail, err.Error(), upgradeHint()
	}
	return c
}

func toolsCheck() hostcap.Check {
	c := hostcap.Check{Name: "machine tools", Level: hostcap.OK, Detail: "busybox and mkfs.ext4 are there"}
	var missing []string
	if _, err := busyboxPath(); err != nil {
		missing = append(missing, "busybox-static")
	}
	if !hostcap.HasProgram("mkfs.ext4") {
		missing = append(missing, "e2fsprogs")
	}
	if len(missing) > 0 {
		c.Level, c.Detail = hostcap.Fail, "missing packages: "+strings.Join(missing, ", ")
		c.Do = debtool.Installer() + ", or apt-get install " + strings.Join(missing, " ")
	}
	return c
}

// nestedKVM reports whether the host's KVM supports KVM in its guests.
func nestedKVM() bool {
	for _, vendor := range []string{"kvm_amd", "kvm_intel"} {
		b, err := os.ReadFile("/sys/module/" + vendor + "/parameters/nested")
		if err == nil && len(b) > 0 && (b[0] == 'Y' || b[0] == '1') {
			return true
		}
	}
	return false
}
