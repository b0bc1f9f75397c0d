package client_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/listen"
)

const token = "0123456789abcdef0123456789abcdef"

// daemon is a real HTTP server over the fake engine, on a Unix socket and TCP.
type daemon struct {
	engine    *fakeengine.Engine
	unix, tcp string
}

func startDaemon(t *testing.T) *daemon {
	t.Helper()
	images := fakeengine.NewImages("python-numpy", "broken")
	d := &daemon{engine: fakeengine.New(images)}
	s := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(d.engine), Images: images, Version: api.VersionInfo{Version: "1.2.3"}})
	var listeners []listen.Listener
	for _, address := range []string{"unix://" + filepath.Join(t.TempDir(), "s"), "tcp://127.0.0.1:0"} {
		l, err := listen.Listen(t.Context(), address, token)
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
	}
	d.unix, d.tcp = listeners[0].URL, listeners[1].URL
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, listeners, 2*time.Second) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("daemon ended with %v", err)
		}
		d.engine.Close()
	})
	return d
}

func (d *daemon) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: d.unix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// sandbox starts a daemon with one sandbox.
func sandbox(t *testing.T, env map[string]string) (*daemon, *client.Client, string) {
	t.Helper()
	d := startDaemon(t)
	c := d.client(t)
	if _, err := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "py", Image: "python-numpy"}, nil); err != nil {
		t.Fatal(err)
	}
	res, err := c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "py", Env: env})
	if err != nil {
		t.Fatal(err)
	}
	return d, c, res.Sandboxes[0].ID
}
