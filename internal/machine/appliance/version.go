package appliance

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/images/debtool"
)

// version is a major and minor number, which is enough for the rules.
type version struct{ major, minor int }

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v version) less(w version) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

var versionNumber = regexp.MustCompile(`(\d{1,4})\.(\d{1,4})`)

// parseVersion parses the first version number in a text.
func parseVersion(text string) (version, error) {
	m := versionNumber.FindStringSubmatch(text)
	if m == nil {
		first, _, _ := strings.Cut(text, "\n")
		return version{}, fmt.Errorf("no version number in %.80q", first)
	}
	major, _ := strconv.Atoi(m[1]) // at most four digits
	minor, _ := strconv.Atoi(m[2])
	return version{major, minor}, nil
}

// ErrUnsupported means that a QEMU and a kernel are known not to work together.
var ErrUnsupported = errors.New("unsupported versions")

// Measured versions. QEMU's emulation of nested paging was reworked between them; versions in between are treated
// like the older one.
var (
	goodQEMU   = version{10, 0}
	oldestQEMU = version{7, 2}
	newKernel  = version{6, 2} // the first kernel that does not work with an old QEMU
)

// hasX2APIC reports whether the appliance's interrupt controllers are accessed by MSRs, for which its kernel
// needs interrupt remapping. In emulation, a memory-mapped register leaves the emulated code and takes QEMU's
// single lock, and timers, interrupts and their ends are a fifth of a fork's cost. With MSRs, a fork of 100
// without shells took 3.6 s instead of 4.1 s (QEMU 10.0, which emulates x2APIC without hardware acceleration).
func hasX2APIC(qemu version, accel string) bool {
	return accel == accelTCG && !qemu.less(goodQEMU)
}

func upgradeHint() string {
	return "install QEMU 10.0 or newer and a 6.12 kernel (Debian 13, or bookworm-backports on Debian 12): " +
		debtool.Installer()
}

// checkVersions returns the number of CPUs an emulated machine may have with this QEMU and kernel. With
// hardware acceleration QEMU's emulation of SVM is not used, and any version from oldestQEMU on works.
func checkVersions(qemu, kernel version, accel string, cpus int) (int, error) {
	switch {
	case qemu.less(oldestQEMU):
		return 0, fmt.Errorf("QEMU %s is too old: %w; %s", qemu, ErrUnsupported, upgradeHint())
	case accel == accelKVM, !qemu.less(goodQEMU):
		return cpus, nil
	case !kernel.less(newKernel):
		// The appliance's kernel panics at the first nested guest.
		return 0, fmt.Errorf("QEMU %s cannot emulate KVM for kernel %s: %w; %s", qemu, kernel, ErrUnsupported, upgradeHint())
	}
	// With two CPUs its SVM emulation loses timer interrupts.
	return 1, nil
}
