package merge

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
	"github.com/forkd/forkd/internal/guest/guestdiff"
	"github.com/forkd/forkd/internal/leaf/membudget"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// root is the user that reads and writes files.
const root = "root"

// guest is one sandbox of a merge.
type guest struct {
	e      Engine
	id     string
	agent  *agentclient.Client
	helper bool // it was forked for the merge, and is killed after it
}

// guests are the sandboxes of a merge. Some may be nil.
type guests struct{ base, ours, theirs *guest }

// openAll reaches the sandboxes, and forks helpers of snapshots.
func openAll(ctx context.Context, e Engine, n names) (*guests, error) {
	s := &guests{ours: reach(e, n.ours.ID)}
	var both sync.WaitGroup
	var errs [2]error
	both.Go(func() { s.base, errs[0] = fork(ctx, e, n.base.Tag) })
	if n.theirs.ID != "" {
		s.theirs = reach(e, n.theirs.ID)
	} else {
		both.Go(func() { s.theirs, errs[1] = fork(ctx, e, n.other.Tag) })
	}
	both.Wait()
	return s, errors.Join(errs[:]...)
}

func (s *guests) close() {
	for _, g := range []*guest{s.base, s.ours, s.theirs} {
		if g == nil {
			continue
		}
		g.agent.Close()
		if g.helper {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			_ = g.e.Kill(ctx, g.id) // it has a deadline too
			cancel()
		}
	}
}

func reach(e Engine, id string) *guest {
	dial := func(ctx context.Context) (net.Conn, error) { return e.DialAgent(ctx, id) }
	return &guest{e: e, id: id, agent: agentclient.New(dial)}
}

// fork makes a helper of a snapshot. It has no network: its programs would repeat what they did.
func fork(ctx context.Context, e Engine, tag string) (*guest, error) {
	private := true
	res, err := e.Fork(ctx, sandbox.ForkRequest{Tag: tag, N: 1, PrivatePorts: &private,
		Network: &netpolicy.Spec{Default: netpolicy.Deny}, Life: sandbox.Life{TTL: maxTime + 5*time.Minute}})
	if err == nil && len(res.Children) > 0 {
		err = res.Children[0].Err
	}
	if err != nil {
		return nil, fmt.Errorf("fork a helper of snapshot %s: %w", tag, err)
	}
	g := reach(e, res.Children[0].Info.ID)
	g.helper = true
	return g, nil
}

// inventory is the list of a guest's files.
type inventory struct {
	stream *connect.ServerStreamForClient[agentv1.InventoryPart]
	of     string
}

func (g *guest) list(ctx context.Context) (*inventory, error) {
	s, err := g.agent.Inventory(ctx, true)
	if err != nil {
		return nil, g.lost(err)
	}
	return &inventory{s, g.id}, nil
}

// Next implements guestdiff.Source.
func (i *inventory) Next() (*agentv1.InventoryPart, error) {
	if i.stream.Receive() {
		return i.stream.Msg(), nil
	}
	if err := i.stream.Err(); err != nil {
		return nil, (&guest{id: i.of}).lost(err)
	}
	return nil, io.EOF
}

func (i *inventory) close() { i.stream.Close() }

// charge charges memory to the request of a context.
func charge(ctx context.Context) guestdiff.Keep {
	account := membudget.From(ctx)
	return func(n int) bool {
		if n < 0 {
			account.Release(int64(-n))
			return true
		}
		return account.Charge(int64(n))
	}
}

// lost converts an error of a guest's agent. An error of the domain, such as a paused sandbox, stays.
func (g *guest) lost(err error) error {
	var own *sandbox.Error
	if errors.As(err, &own) {
		return err
	}
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonAgentOld,
			"the agent in sandbox %s is older and cannot list its files", g.id)
	}
	return sandbox.Errorf(sandbox.ErrGuestGone, "", "sandbox %s: %w", g.id, err)
}

// limited fails when more bytes are written than it has room for.
type limited struct {
	w    io.Writer
	room int64
}

var errLarge = errors.New("the file is too large to merge")

func (l *limited) Write(p []byte) (int, error) {
	if l.room -= int64(len(p)); l.room < 0 {
		return 0, errLarge
	}
	return l.w.Write(p)
}

// read copies a file of the guest.
func (g *guest) read(ctx context.Context, path string, most int64, to io.Writer) error {
	l := &limited{to, most}
	_, err := g.agent.Download(ctx, path, root, l)
	if l.room < 0 {
		return fmt.Errorf("%s in %s: %w", path, g.id, errLarge)
	}
	if err != nil {
		return g.lost(err)
	}
	return nil
}

// digest returns the SHA-256 of a file.
func (g *guest) digest(ctx context.Context, path string) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if err = g.read(ctx, path, maxFile, h); err == nil {
		h.Sum(sum[:0])
	}
	return sum, err
}

// write writes a file. Its old content stays until the new one is complete.
func (g *guest) write(ctx context.Context, path string, f *guestdiff.Entry, from io.Reader) error {
	return g.agent.Upload(ctx, path, root, f.Mode.Perm(), from)
}

func (g *guest) link(ctx context.Context, path, target string) error {
	q := url.Values{"path": {path}, "target": {target}, "username": {root}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/files/link?"+q.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := g.agent.HTTP().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the agent answers %d to a link", resp.StatusCode)
	}
	return nil
}

func (g *guest) makeDir(ctx context.Context, path string) error {
	req := connect.NewRequest(&filesystem.MakeDirRequest{Path: path})
	req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(root+":")))
	_, err := g.agent.Filesystem().MakeDir(ctx, req)
	if connect.CodeOf(err) == connect.CodeAlreadyExists {
		return nil
	}
	return err
}

// run runs a program as root, which must succeed.
func (g *guest) run(ctx context.Context, args ...string) error {
	keep := func(n int) int { return min(n, 4096) } // of its complaints
	res, err := g.e.Exec(ctx, g.id, sandbox.ExecRequest{Args: args, User: root, Keep: keep})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("%s: exit code %d: %s", args[0], res.ExitCode, sandbox.Clip(string(res.Stderr)))
	}
	return err
}
