package guestinit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/mdlayher/vsock"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/inventory"
	"github.com/forkd/forkd/internal/guest/agent/nic"
	"github.com/forkd/forkd/internal/guest/agentproto"
)

// Boot sets up the guest, from the kernel's hand-over until programs can run.
func Boot(log func(string, ...any)) (Options, error) {
	if err := mountAll(early); err != nil {
		return Options{}, err
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return Options{}, fmt.Errorf("read kernel command line: %w", err)
	}
	o := ParseCmdline(string(line))
	if err := loadModules(moduleDir, log); err != nil {
		return o, err
	}
	var limits defaults.Limits
	if o.Root != "" {
		if err := mountRoot(o.Root, o.Upper); err != nil {
			return o, err
		}
		if o.Layers, err = inventory.OpenLayers(lowerDir, upperDir+"/files"); err != nil {
			return o, err
		}
		image, err := defaults.Load(newRoot + "/etc/forkd/image.json")
		if err != nil {
			log("%v", err) // the agent will say the same
		}
		limits = image.Limits
		if err := mountDiskDirs(newRoot, upperDir+"/dirs", image.DiskDirs); err != nil {
			log("%v", err) // the directories are in the root, then
		}
		if err := switchRoot(); err != nil {
			return o, err
		}
	}
	return o, settle(limits, log)
}

// settle does the rest of the set-up once the root is mounted.
func settle(limits defaults.Limits, log func(string, ...any)) error {
	if err := mountAll(late); err != nil {
		return err
	}
	if err := makeLinks(); err != nil {
		return err
	}
	if err := mountWholeProc(); err != nil {
		log("%v", err) // only programs with user namespaces need it
	}
	if err := os.MkdirAll("/tmp", 0o1777); err != nil { // #nosec G301 -- the guest's /tmp
		return fmt.Errorf("make /tmp: %w", err)
	}
	if err := os.Chmod("/tmp", os.ModeSticky|0o777); err != nil { // #nosec G302 -- the guest's /tmp
		return fmt.Errorf("open up /tmp: %w", err)
	}
	if err := loopbackUp(); err != nil {
		log("%v", err) // a guest without loopback is still useful
	}
	if err := networkUp(); err != nil {
		log("%v", err) // likewise
	}
	if err := setHostname(); err != nil {
		log("%v", err)
	}
	if err := makeStaticNodes(); err != nil {
		log("%v", err) // programs can still load modules themselves
	}
	if err := raiseLimits(limits); err != nil {
		log("%v", err)
	}
	stopPeriodicWork()
	return os.Setenv("PATH", defaults.Path)
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	return nil
}

// networkUp configures the network device, if there is one.
func networkUp() error {
	found, err := nic.Configure()
	if !found {
		return err
	}
	return errors.Join(err, nic.WriteResolvConf("/etc/resolv.conf"))
}

func setHostname() error {
	name := []byte("forkd")
	if b, err := os.ReadFile("/etc/hostname"); err == nil && len(bytes.TrimSpace(b)) > 0 {
		name = bytes.TrimSpace(b)
	}
	if err := unix.Sethostname(name); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	return nil
}

// SignalReady reports once to the host that the agent serves requests.
func SignalReady(ctx context.Context) error {
	var err error
	for range 50 {
		if err = signalOnce(); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond): // the host may listen a moment later
		}
	}
	return fmt.Errorf("signal ready to the host: %w", err)
}

func signalOnce() (err error) {
	var c net.Conn
	if c, err = vsock.Dial(vsock.Host, agentproto.ReadyPort, nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	_, err = c.Write([]byte(agentproto.ReadyMessage))
	return err
}

// StartBeside starts the agent as a child, so this process can become the image's own init. It runs
// the binary through /proc, because the file stayed in the initramfs.
func StartBeside(args ...string) error {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start agent beside init: %w", err)
	}
	return nil
}

// Become runs the image's own init in this process. It returns only on failure.
func Become(init string) error {
	err := unix.Exec(init, []string{init}, os.Environ())
	return fmt.Errorf("run init %s: %w", init, err)
}

// Fail prints the error on the console and ends the VM. It is only for PID 1 and does not return.
func Fail(err error) {
	line := fmt.Sprintf("forkd-agent: boot failed: %v\n", err)
	_, _ = os.Stderr.WriteString(line)
	if c, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil {
		_, _ = c.WriteString("<2>" + line) // also visible if init has no console
		_ = c.Close()
	}
	unix.Sync()
	time.Sleep(50 * time.Millisecond) // the console is slow
	// A restart always ends our VMs; a power-off needs working ACPI.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}

// PowerOff shuts the VM down. It is only for PID 1.
func PowerOff() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}
