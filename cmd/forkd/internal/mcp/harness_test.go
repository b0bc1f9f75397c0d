package mcp

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/listen"
)

// fake is a daemon: the real HTTP server over the fake engine, with deadlines by the real clock.
type fake struct {
	engine *fakeengine.Engine
	url    string
	stop   func() // ends it before the test's end
}

func startFake(t *testing.T) *fake {
	t.Helper()
	images := fakeengine.NewImages("python-numpy", "broken")
	d := &fake{engine: fakeengine.New(images)}
	d.engine.Clock = time.Now
	s := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(d.engine), Images: images,
		Version: api.VersionInfo{Version: "1.2.3", Domain: "forkd.localhost"}})
	l, err := listen.Listen(t.Context(), "unix://"+filepath.Join(t.TempDir(), "s"), "")
	if err != nil {
		t.Fatal(err)
	}
	d.url = l.URL
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx, []listen.Listener{l}, 100*time.Millisecond) })
	running.Go(func() { endDue(ctx, d.engine) })
	d.stop = func() { stop(); running.Wait() }
	t.Cleanup(func() { d.stop(); d.engine.Close() })
	c := d.client(t)
	if _, err := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "py", Image: "python-numpy"}, nil); err != nil {
		t.Fatal(err)
	}
	return d
}

// endDue does the daemon's part: it ends sandboxes at their deadlines.
func endDue(ctx context.Context, e *fakeengine.Engine) {
	for ctx.Err() == nil {
		fakeengine.EndDue(e)
		time.Sleep(20 * time.Millisecond)
	}
}

func (d *fake) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: d.url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (d *fake) options() Options {
	return Options{
		Connect: func(context.Context) (*client.Client, error) { return client.New(client.Options{URL: d.url}) },
		Version: "1.2.3", MaxSandboxes: DefaultMax, MaxLifetime: DefaultMaxLifetime, Lease: DefaultLease,
		Idle: DefaultIdle, OutputBytes: DefaultOutputBytes, Log: slog.New(slog.DiscardHandler),
	}
}

// user is a client of an MCP server over the fake daemon.
type user struct {
	*sdk.ClientSession
	t    *testing.T
	end  func() // the server's session
	told chan *sdk.ProgressNotificationParams
}

// connect connects a client in memory. change may change the options.
func (d *fake) connect(t *testing.T, change func(*Options)) *user {
	t.Helper()
	opt := d.options()
	if change != nil {
		change(&opt)
	}
	s, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	n := s.newSession(0)
	server := s.build(func(*sdk.ServerSession) *session { return n })
	here, there := sdk.NewInMemoryTransports()
	ss, err := server.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	u := &user{t: t, told: make(chan *sdk.ProgressNotificationParams, 1000)}
	u.end = func() { n.close(); ss.Close(); s.Close() }
	u.ClientSession, err = newClient(u.told).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close(); u.end() })
	return u
}

func newClient(told chan *sdk.ProgressNotificationParams) *sdk.Client {
	return sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { told <- r.Params },
	})
}

// call calls a tool. The answer may be an error of the tool.
func (u *user) call(name string, args any) *sdk.CallToolResult {
	u.t.Helper()
	res, err := u.CallTool(u.t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		u.t.Fatalf("%s: %v", name, err)
	}
	return res
}

// ok calls a tool and decodes its structured answer.
func ok[Out any](u *user, name string, args any) (out Out) {
	u.t.Helper()
	res := u.call(name, args)
	if res.IsError {
		u.t.Fatalf("%s: %s", name, textIn(res))
	}
	b, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		u.t.Fatalf("%s: %v", name, err)
	}
	return out
}

// fails calls a tool and returns its error and the code of it.
func (u *user) fails(name string, args any) (text, code string) {
	u.t.Helper()
	res := u.call(name, args)
	if !res.IsError {
		u.t.Fatalf("%s succeeded: %s", name, textIn(res))
	}
	code, _ = res.Meta[metaPrefix+"code"].(string)
	return textIn(res), code
}

func textIn(res *sdk.CallToolResult) (text string) {
	for _, c := range res.Content {
		if c, ok := c.(*sdk.TextContent); ok {
			text += c.Text
		}
	}
	return text
}

// one spawns a sandbox and returns its ID.
func (u *user) one() string {
	u.t.Helper()
	return ok[spawned](u, "spawn_sandboxes", map[string]any{"snapshot_tag": "py"}).Sandboxes[0].ID
}

// eventually waits until done returns true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 20 s: %s", what)
		}
	}
}

// bearer adds a token to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
