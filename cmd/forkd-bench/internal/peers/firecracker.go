package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/vmspec"
)

// Firecracker restores each guest from one snapshot, as forkd does: one process per guest, with the
// memory file mapped. It boots a forkd image, so kernel, root and agent are the same as in forkd's
// own guests. The agent answers over vsock through a Unix socket, which Firecracker offers, too.
// The guests get no identity: they share their random state.
type Firecracker struct {
	Host      *Host
	Program   string // path; empty if not configured
	Image     string // directory of an image from `forkd image build`
	MemoryMiB int

	program program
	dir     string
}

// Name implements Peer.
func (f *Firecracker) Name() string { return "firecracker restore" }

// Files of an image.
const (
	imageKernel = "vmlinux"
	imageInitrd = "initrd"
	imageRoot   = "root.erofs"
)

// Available implements Peer.
func (f *Firecracker) Available() error {
	if f.Program == "" {
		return missing("no program was named by --firecracker")
	}
	if f.Image == "" {
		return missing("no image was named by --image")
	}
	for _, file := range []string{f.Program, "/dev/kvm", f.file(imageKernel), f.file(imageInitrd), f.file(imageRoot)} {
		if _, err := os.Stat(file); err != nil {
			return missing("%v", err)
		}
	}
	f.program = program{host: f.Host, path: f.Program}
	return nil
}

func (f *Firecracker) file(name string) string { return filepath.Join(f.Image, name) }

func (f *Firecracker) snapshot(name string) string { return filepath.Join(f.dir, name) }

// Prepare implements Peer. It boots, warms up and saves the first guest. All others are restored
// from it.
func (f *Firecracker) Prepare(ctx context.Context) (err error) {
	if f.dir, err = os.MkdirTemp(f.Host.Work, "fc-"); err != nil {
		return err
	}
	m, err := f.process(ctx, "source")
	if err != nil {
		return err
	}
	defer m.Close()
	ready, err := net.Listen("unix", fmt.Sprintf("%s_%d", m.vsock(), agentproto.ReadyPort))
	if err != nil {
		return err
	}
	defer ready.Close()
	if err := f.boot(ctx, m); err != nil {
		return err
	}
	if err := awaitDial(ctx, ready); err != nil {
		return m.said.explain("boot in Firecracker", err)
	}
	if err := m.Ask(ctx); err != nil {
		return err
	}
	if _, err := m.agent.Quiesce(ctx, &agentv1.QuiesceRequest{}); err != nil {
		return err
	}
	if err := m.call(ctx, http.MethodPatch, "/vm", object{"state": "Paused"}); err != nil {
		return err
	}
	return m.call(ctx, http.MethodPut, "/snapshot/create", object{
		"snapshot_type": "Full", "snapshot_path": f.snapshot("state"), "mem_file_path": f.snapshot("memory"),
	})
}

type object = map[string]any

func (f *Firecracker) boot(ctx context.Context, m *microVM) error {
	for _, c := range []struct {
		path string
		body object
	}{
		{"/machine-config", object{"vcpu_count": 1, "mem_size_mib": f.MemoryMiB}},
		{"/boot-source", object{
			"kernel_image_path": f.file(imageKernel), "initrd_path": f.file(imageInitrd),
			"boot_args": vmspec.KernelArgs + " forkd.root=/dev/vda",
		}},
		{"/drives/root", object{
			"drive_id": "root", "path_on_host": f.file(imageRoot), "is_root_device": false, "is_read_only": true,
		}},
		{"/vsock", object{"guest_cid": 3, "uds_path": "v"}}, // relative: each process runs in a separate directory
		{"/actions", object{"action_type": "InstanceStart"}},
	} {
		if err := m.call(ctx, http.MethodPut, c.path, c.body); err != nil {
			return err
		}
	}
	return nil
}

// awaitDial waits until the guest reports readiness.
func awaitDial(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	if err := l.(*net.UnixListener).SetDeadline(time.Now().Add(2 * askLimit)); err != nil {
		return err
	}
	c, err := l.Accept()
	if err != nil {
		return err
	}
	return c.Close()
}

// Start implements Peer.
func (f *Firecracker) Start(ctx context.Context, i int) (_ Guest, err error) {
	m, err := f.process(ctx, fmt.Sprint(i))
	if err != nil {
		return nil, err
	}
	err = m.call(ctx, http.MethodPut, "/snapshot/load", object{
		"snapshot_path": f.snapshot("state"), "resume_vm": true,
		"mem_backend": object{"backend_type": "File", "backend_path": f.snapshot("memory")},
	})
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Close implements Peer.
func (f *Firecracker) Close() error {
	if f.dir == "" {
		return nil
	}
	return os.RemoveAll(f.dir)
}

// process starts a Firecracker process without a guest.
func (f *Firecracker) process(ctx context.Context, name string) (*microVM, error) {
	m := &microVM{dir: filepath.Join(f.dir, name)}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return nil, err
	}
	m.cmd = f.program.command(context.Background(), "--api-sock", "a")
	m.cmd.Dir, m.cmd.Stdout, m.cmd.Stderr = m.dir, &m.said, &m.said
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Firecracker: %w", err)
	}
	api := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, filepath.Join(m.dir, "a")) }
	m.http = &http.Client{Transport: &http.Transport{DialContext: api}}
	m.agent = agentclient.New(m.dialAgent)
	return m, nil
}

// microVM is a Firecracker guest.
type microVM struct {
	dir   string
	cmd   *exec.Cmd
	said  tail
	http  *http.Client
	agent *agentclient.Client
}

func (m *microVM) vsock() string { return filepath.Join(m.dir, "v") }

// dial retries until the socket accepts a connection. A process that just started has not made its
// socket yet.
func dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	for end := time.Now().Add(askLimit); ; {
		c, err := d.DialContext(ctx, "unix", path)
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return c, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// dialAgent connects to the agent through Firecracker's vsock. Its handshake is one line in each
// direction.
func (m *microVM) dialAgent(ctx context.Context) (net.Conn, error) {
	c, err := dial(ctx, m.vsock())
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := fmt.Fprintf(c, "CONNECT %d\n", agentproto.AgentPort); err != nil {
		c.Close()
		return nil, err
	}
	in := bufio.NewReaderSize(c, 32) // the agent sends no data before the first request
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "OK ") || in.Buffered() > 0 {
		c.Close()
		return nil, fmt.Errorf("the guest answers %q: %w", line, errors.Join(err, errAnswer))
	}
	return c, nil
}

// call sends a request to Firecracker's API.
func (m *microVM) call(ctx context.Context, method, path string, body object) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://firecracker"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	res, err := m.http.Do(req)
	if err != nil {
		return m.said.explain("ask Firecracker", err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		said, _ := io.ReadAll(io.LimitReader(res.Body, maxTail))
		return fmt.Errorf("firecracker: %s %s: %s: %s", method, path, res.Status, said)
	}
	return nil
}

// Ask implements Guest.
func (m *microVM) Ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	r, err := m.agent.Eval(ctx, &agentv1.EvalRequest{Code: question})
	if err == nil && r.GetResult() != answer {
		err = fmt.Errorf("answer %q %s: %w", r.GetResult(), r.GetError(), errAnswer)
	}
	return err
}

// Processes implements Guest.
func (m *microVM) Processes() []int { return []int{m.cmd.Process.Pid} }

// Close implements Guest.
func (m *microVM) Close() error {
	m.http.CloseIdleConnections()
	m.agent.Close()
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait() // killed
	return os.RemoveAll(m.dir)
}
