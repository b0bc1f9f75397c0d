package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/portspec"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/leaf/duplex"
)

func newPortForwardCommand(a *app) *cobra.Command {
	address := "127.0.0.1"
	cmd := &cobra.Command{
		Use:   "port-forward ID [ADDRESS:][LOCAL:]PORT...",
		Short: "Forward local ports to a sandbox",
		Long: "Listen on this host, and forward connections to a server in a sandbox, until Ctrl-C. PORT is the\n" +
			"server's port. The server may listen on localhost only, and the sandbox needs no network. LOCAL is\n" +
			"the port on this host (default: PORT). If it is 0 or empty, a free port is chosen.\n\n" +
			"The command prints the local addresses as soon as they accept connections.",
		Example: "  forkd port-forward sb-5f3a-0001 8080\n  forkd port-forward sb-5f3a-0001 8080:80 :5432\n" +
			"  forkd port-forward --address 0.0.0.0 sb-5f3a-0001 8080:80",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			var specs []portspec.Spec
			for _, arg := range args[1:] {
				s, err := portspec.Parse(arg, address)
				if err != nil {
					return exit.UsageError{Err: err}
				}
				specs = append(specs, s)
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return a.forwardPorts(ctx, c, args[0], specs)
			})
		},
	}
	cmd.Flags().StringVar(&address, "address", address, "listen on `ADDRESS` unless an argument has one")
	return cmd
}

// forward is one forwarded port, as --json prints it.
type forward struct {
	Local   string `json:"local"`
	Sandbox string `json:"sandbox"`
	Port    uint16 `json:"port"`

	l net.Listener
}

// forwardPorts listens on all addresses or returns an error. It serves until ctx or the sandbox
// ends. The end by Ctrl-C is no error.
func (a *app) forwardPorts(ctx context.Context, c *client.Client, id string, specs []portspec.Spec) error {
	sb, err := c.Sandbox(ctx, id)
	if err != nil {
		return err
	}
	all, err := listenAll(ctx, sb.ID, specs)
	defer func() {
		for _, f := range all {
			f.l.Close()
		}
	}()
	if err == nil {
		err = printForwards(&a.Printer, all)
	}
	if err != nil {
		return err
	}
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	trouble := &troubles{say: func(text string) { fmt.Fprintln(a.Err, "forkd: "+text) }, end: end, now: time.Now}
	var serving sync.WaitGroup
	for _, f := range all {
		serving.Go(func() { f.serve(life, c, trouble) })
	}
	serving.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(life)
}

func listenAll(ctx context.Context, id string, specs []portspec.Spec) (all []forward, err error) {
	for _, s := range specs {
		l, err := new(net.ListenConfig).Listen(ctx, listenNetwork(s.Local), s.Local)
		if err != nil {
			return all, cannotListen(err, s.Port)
		}
		all = append(all, forward{l.Addr().String(), id, s.Port, l})
	}
	return all, nil
}

// cannotListen describes an address that cannot be bound. An error of an unknown kind counts as a
// taken port.
func cannotListen(err error, port uint16) error {
	code := localCode(err)
	if code == "" {
		code = api.CodeConflict
	}
	hint := fmt.Sprintf("choose another local port; `:%d` takes a free one", port)
	if code == api.CodeInvalid {
		hint = "name an address of this host"
	}
	return hints.With(codedError{fmt.Errorf("cannot listen here: %w", err), code}, hint)
}

// listenNetwork restricts an address to its own family. 0.0.0.0 on "tcp" would listen on IPv6 as
// well.
func listenNetwork(local string) string {
	host, _, _ := net.SplitHostPort(local)
	switch ip, err := netip.ParseAddr(host); {
	case err != nil:
		return "tcp"
	case ip.Is4():
		return "tcp4"
	}
	return "tcp6"
}

func printForwards(p *ui.Printer, all []forward) error {
	if p.JSON {
		return p.Value(all)
	}
	for _, f := range all {
		if p.Quiet {
			if err := p.Line("%s", f.Local); err != nil {
				return err
			}
			continue
		}
		if err := p.Line("%s -> %s:%d", f.Local, f.Sandbox, f.Port); err != nil {
			return err
		}
	}
	return nil
}

// serve forwards incoming connections until ctx ends.
func (f forward) serve(ctx context.Context, c *client.Client, t *troubles) {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { f.l.Close() })()
	for {
		local, err := f.l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				local.Close()
			}
			return
		}
		if err != nil {
			t.end(fmt.Errorf("accept connections on %s: %w", f.Local, err))
			return
		}
		conns.Go(func() {
			defer local.Close()
			guest, err := c.DialPort(ctx, f.Sandbox, f.Port)
			if err != nil {
				if ctx.Err() == nil {
					t.note(err)
				}
				return
			}
			duplex.Join(ctx, local, guest)
		})
	}
}

// troubles reports failed connections. It reports repeated failures once a second, with their
// number.
type troubles struct {
	say func(string)
	end context.CancelCauseFunc
	now func() time.Time

	mu    sync.Mutex
	count map[string]int
	told  map[string]time.Time
}

func (t *troubles) note(err error) {
	if goneForGood(err) {
		t.end(err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count, t.told = map[string]int{}, map[string]time.Time{}
	}
	text := err.Error()
	t.count[text]++
	if t.now().Sub(t.told[text]) < time.Second {
		return
	}
	t.told[text] = t.now()
	if n := t.count[text]; n > 1 {
		text += fmt.Sprintf(" (%d times)", n)
	}
	t.say(text)
}

// goneForGood reports whether an error means the end of a sandbox, not a temporary failure.
func goneForGood(err error) bool {
	var e *client.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Reason {
	case api.ReasonSandboxEnded, api.ReasonSandboxFailed, api.ReasonAgentOld:
		return true
	}
	return e.Code == api.CodeNotFound
}
