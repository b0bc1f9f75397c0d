package fetcher

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
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
)

// Client starts the process and talks to it. It is safe for concurrent use.
type Client struct {
	dir     string
	command []string
	http    *http.Client
	mu      sync.Mutex // held while the process is started
}

// startTimeout limits the time until a new process answers.
const startTimeout = 10 * time.Second

// NewClient returns a client of the process with that directory. command starts the process.
func NewClient(dir string, command []string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, socketName))
	}
	return &Client{dir: dir, command: command, http: &http.Client{
		Transport: &http.Transport{DialContext: dial, MaxIdleConns: 2}, Timeout: 30 * time.Second,
	}}
}

// Add registers a partial file of the store. It starts the process if it does not run.
func (c *Client) Add(ctx context.Context, id layer.ID, logins []hub.Login) error {
	if err := c.Ensure(ctx); err != nil {
		return err
	}
	return c.post(ctx, "add", addRequest{id, logins})
}

// Start begins the prefetch of files.
func (c *Client) Start(ctx context.Context, ids []layer.ID) error {
	return c.post(ctx, "start", startRequest{ids})
}

// Files returns the state of the files.
func (c *Client) Files(ctx context.Context) ([]State, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://fetcher/files", nil)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var all []State
	return all, json.NewDecoder(io.LimitReader(res.Body, 16<<20)).Decode(&all)
}

func (c *Client) post(ctx context.Context, what string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://fetcher/"+what, bytes.NewReader(b))
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		return fmt.Errorf("fetcher: %s", bytes.TrimSpace(text))
	}
	return nil
}

// Ensure starts the process unless it answers.
func (c *Client) Ensure(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.Files(ctx); err == nil {
		return nil
	}
	if len(c.command) == 0 {
		return errors.New("this daemon cannot fetch snapshots later")
	}
	return c.start(ctx)
}

func (c *Client) start(ctx context.Context) error {
	path := filepath.Join(c.dir, logName)
	_ = os.Rename(path, path+".1")
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.command[0], c.command[1:]...) // #nosec G204 -- of this program's flags
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // keeps signals to the daemon's process group from it
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the fetcher: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if _, err := c.Files(ctx); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("start the fetcher: it has ended: %w%s", errors.Join(err, errors.New("")), lastWords(path))
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			return fmt.Errorf("start the fetcher: %w%s", context.Cause(ctx), lastWords(path))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func lastWords(path string) string {
	b, _ := os.ReadFile(path)
	if len(b) == 0 {
		return ""
	}
	return fmt.Sprintf("; it said: %q", b[max(0, len(b)-400):])
}
