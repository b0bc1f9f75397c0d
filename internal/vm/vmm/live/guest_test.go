package live

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The test binary itself is the guest's init: the kernel starts it as process 1, and it plays the
// role from the command line. Its output goes to the console.
func TestMain(m *testing.M) {
	if os.Getpid() == 1 && filepath.Base(os.Args[0]) == "init" {
		guestMain()
	}
	goleak.VerifyTestMain(m)
}

// guestRoles are the guest's sides of tests. When a role returns, the guest powers off.
var guestRoles = map[string]func(){
	"hello":   func() { fmt.Println("hello from the guest") },
	"reboot":  func() { unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) },
	"panic":   func() { os.Exit(7) }, // the end of init is a kernel panic
	"count":   guestCount,
	"smp":     guestSMP,
	"memory":  guestMemory,
	"devices": guestDevices,
	"serve":   guestServe,
}

func guestMain() {
	for _, m := range []struct{ source, target, kind string }{{"proc", "/proc", "proc"}, {"sys", "/sys", "sysfs"}, {"dev", "/dev", "devtmpfs"}} {
		os.MkdirAll(m.target, 0o755)
		unix.Mount(m.source, m.target, m.kind, 0, "")
	}
	role := guestRoles[kernelArg("forkd.test")]
	if role == nil {
		fmt.Printf("guest: unknown role %q\n", kernelArg("forkd.test"))
	} else {
		role()
	}
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func kernelArg(name string) string {
	b, _ := os.ReadFile("/proc/cmdline")
	for _, f := range strings.Fields(string(b)) {
		if v, ok := strings.CutPrefix(f, name+"="); ok {
			return v
		}
	}
	return ""
}

// guestCount prints a number every 50 ms, with the uptime in milliseconds.
func guestCount() {
	for i := 0; ; i++ {
		var ts unix.Timespec
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
		fmt.Printf("count %d uptime %d\n", i, ts.Nano()/1e6)
		time.Sleep(50 * time.Millisecond) // elapses: the guest's own beat
	}
}

func guestSMP() {
	b, _ := os.ReadFile("/proc/cpuinfo")
	fmt.Printf("cpus %d\n", strings.Count(string(b), "processor\t:"))
}

func guestMemory() {
	b, _ := os.ReadFile("/proc/meminfo")
	first, _, _ := strings.Cut(string(b), "\n")
	fmt.Println(first)
}

// guestDevices prints the platform as the guest sees it.
func guestDevices() {
	for _, p := range []string{"/sys/devices/system/clocksource/clocksource0/current_clocksource", "/proc/interrupts"} {
		b, _ := os.ReadFile(p)
		fmt.Printf("%s: %s\n", filepath.Base(p), b)
	}
	entries, _ := os.ReadDir("/sys/bus/acpi/devices")
	for _, e := range entries {
		fmt.Println("acpi", e.Name())
	}
}
