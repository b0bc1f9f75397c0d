package guest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// controlPort is the second serial port. It works without network and agent, so that an appliance with a broken
// network still stops cleanly.
const controlPort = "/dev/ttyS1"

// stopGrace is the time for services between SIGTERM and SIGKILL.
const stopGrace = 10 * time.Second

// serveControl executes commands from the host until the power-off.
func (a *appliance) serveControl() {
	for {
		if err := a.readControl(); err != nil {
			a.logf("control port: %v", err)
		}
		time.Sleep(time.Second)
	}
}

func (a *appliance) readControl() error {
	f, err := os.OpenFile(controlPort, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := makeRaw(int(f.Fd())); err != nil {
		return fmt.Errorf("set raw mode: %w", err)
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, 256), 4096)
	for lines.Scan() {
		switch strings.TrimSpace(lines.Text()) {
		case "poweroff":
			fmt.Fprintln(f, "ok")
			a.powerOff()
		case "services":
			b, err := json.Marshal(a.sup.status())
			if err != nil {
				return err
			}
			fmt.Fprintf(f, "%s\n", b)
		}
	}
	return lines.Err()
}

func makeRaw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag = 0
	t.Oflag = 0
	t.Lflag = 0
	t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

// powerOff stops all processes, syncs and unmounts the data disk, and ends the machine.
func (a *appliance) powerOff() {
	a.logf("power-off requested")
	a.sup.stop(stopGrace)
	unix.Sync()
	a.unmountAll()
	a.logf("power off")
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}
