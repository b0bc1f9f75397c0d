package appliance

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// Forward forwards a port of the host's loopback to a port of the running machine, and returns the host's. It lasts
// until the machine stops. Tests use it for daemons that they start in the machine.
func (a *Appliance) Forward(ctx context.Context, port int) (host int, err error) {
	s, err := a.running()
	if err != nil {
		return 0, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	host = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil { // QEMU binds it
		return 0, err
	}
	c, err := a.dialSocket(ctx, qmpSocket)
	if err != nil {
		return 0, fmt.Errorf("dial QMP: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return 0, err
	}
	reply, err := qmpRun(c, forwarding(host, port))
	if err != nil {
		return 0, err
	}
	if err := forwarded(reply); err != nil {
		return 0, fmt.Errorf("forward port %d of the machine: %w", port, err)
	}
	return host, lengthenQueues(s.PID, host)
}

// forwarding returns the command that forwards a port.
func forwarding(host, port int) qmpCommand {
	return qmpCommand{Execute: "human-monitor-command", Arguments: map[string]string{
		"command-line": fmt.Sprintf("hostfwd_add net0 tcp:127.0.0.1:%d-:%d", host, port)}}
}

// forwarded reads the answer of QEMU's monitor. It is text: an error, or empty.
func forwarded(reply json.RawMessage) error {
	var text string
	if err := json.Unmarshal(reply, &text); err != nil {
		return fmt.Errorf("read QEMU's answer: %w", err)
	}
	if text != "" {
		return fmt.Errorf("QEMU refuses: %q", text)
	}
	return nil
}
