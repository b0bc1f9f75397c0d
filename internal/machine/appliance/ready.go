package appliance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/machine/appliance/guest"
)

const (
	// maxConsole is the size of a console log kept by rotation.
	maxConsole = 8 << 20
	// tailLines and tailBytes limit the part of a console log in an error message.
	tailLines = 25
	tailBytes = 16 << 10
)

// ErrDaemon means that the machine is up, but its daemon is not.
var ErrDaemon = errors.New("the daemon in the machine does not start")

// waitReady waits until the appliance's services answer over HTTP.
func (a *Appliance) waitReady(ctx context.Context, s state, limit time.Duration, agentOnly bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	if err := rotateLog(a.path(consoleFile), maxConsole); err != nil {
		return fmt.Errorf("rotate console log: %w", err)
	}
	if err := a.waitHTTP(ctx, s, s.AgentPort, func() error { return nil }); err != nil {
		return err
	}
	if agentOnly {
		return nil
	}
	return a.waitHTTP(ctx, s, s.APIPort, func() error { return a.checkDaemon(ctx) })
}

// maxRestarts is the number of times the daemon may have ended before a start fails.
const maxRestarts = 3

// checkDaemon asks the appliance's init, so that a daemon that keeps ending is an error early, not only at the
// time limit.
func (a *Appliance) checkDaemon(ctx context.Context) error {
	line, err := a.control(ctx, "services")
	if err != nil {
		return nil // the control port is busy or slow; the time limit decides
	}
	var services []guest.ServiceStatus
	if json.Unmarshal([]byte(line), &services) != nil {
		return nil
	}
	for _, svc := range services {
		if svc.Name == daemonService && svc.Restarts >= maxRestarts {
			return reasonedError{fmt.Errorf("%w: %s", ErrDaemon, svc.Last), "machine_daemon_ended",
				map[string]string{"machine": a.Name, "log": daemonLog}}
		}
	}
	return nil
}

// waitHTTP waits for an HTTP answer on a forwarded port. QEMU accepts connections before the appliance listens,
// so only an answer counts.
func (a *Appliance) waitHTTP(ctx context.Context, s state, port int, check func() error) error {
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10}
	defer transport.CloseIdleConnections()
	c := &http.Client{
		Transport: transport, Timeout: 2 * time.Second,
		// A redirect would let the machine choose the host's next request.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "/health"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if res, err := c.Do(req); err == nil { // any status shows that it is up
			_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 4096))
			return res.Body.Close()
		}
		if !s.alive() {
			return a.deathReport(errDied)
		}
		if err := check(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return a.deathReport(context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// deathReport adds the last output of QEMU and of the console to an error.
func (a *Appliance) deathReport(err error) error {
	var b strings.Builder
	for _, name := range []string{qemuLogFile, consoleFile} {
		if tail := a.tail(name); tail != "" {
			fmt.Fprintf(&b, "\n--- last lines of %s\n%s", a.path(name), tail)
		}
	}
	return fmt.Errorf("machine %s: %w%s", a.Name, err, b.String())
}

func (a *Appliance) tail(name string) string {
	b, err := tailFile(a.path(name), tailBytes)
	if err != nil {
		return ""
	}
	return lastLines(string(b), tailLines)
}

// ConsoleTail returns the end of the console log, for error messages.
func (a *Appliance) ConsoleTail() string { return a.tail(consoleFile) }

func lastLines(text string, n int) string {
	text = strings.TrimRight(strings.ReplaceAll(text, "\r", ""), "\n")
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// tailFile reads at most the last n bytes of a file.
func tailFile(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > n {
		if _, err := f.Seek(-n, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	var buf bytes.Buffer
	if _, err := io.Copy(&buf, io.LimitReader(f, n)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return buf.Bytes(), nil
}
