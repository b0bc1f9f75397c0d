package agentclient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/msgwire"
)

// shouted is a megabyte that must not be in any error.
var shouted = strings.Repeat("\x1b\u202e\x00", 200_000)

// shouter answers each request with an error, in all forms used by agents.
func shouter(w http.ResponseWriter, r *http.Request) {
	body, _ := json.Marshal(map[string]any{"code": "invalid_argument", "message": shouted})
	switch {
	case r.Header.Get("Content-Type") == "application/connect+proto":
		w.Header().Set("Content-Type", "application/connect+proto")
		end, _ := json.Marshal(map[string]any{"error": json.RawMessage(body)})
		w.Write([]byte{2, byte(len(end) >> 24), byte(len(end) >> 16), byte(len(end) >> 8), byte(len(end))})
		w.Write(end)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		w.Write(body)
	}
}

// All calls of a client return errors that are safe to show, whatever an agent answers.
func TestAnAgentThatShouts(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(shouter))
	defer s.Close()
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}
	refuse := func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			_ = msgwire.Read(theirs, new(agentv1.IdentityRequest), msgwire.MaxIdentityBytes)
			_ = msgwire.Write(theirs, &agentv1.IdentityAnswer{Refused: shouted[:40_000]}, msgwire.MaxIdentityBytes)
		}()
		return ours, nil
	}
	for name, opts := range map[string][]agentclient.Option{"binary": nil, "JSON": {agentclient.WithJSON()}} {
		c := agentclient.New(dial, append(opts, agentclient.WithIdentityPort(refuse))...)
		defer c.Close()
		ctx := t.Context()
		for call, do := range map[string]func() error{
			"ping":     func() error { _, err := c.Ping(ctx); return err },
			"identity": func() error { _, err := c.Identity(ctx, &agentv1.IdentityRequest{}); return err },
			"identity by port": func() error {
				_, err := c.IdentityByPort(ctx, &agentv1.IdentityRequest{})
				return err
			},
			"warm":     func() error { _, err := c.Warm(ctx, &agentv1.WarmRequest{}); return err },
			"quiesce":  func() error { _, err := c.Quiesce(ctx, &agentv1.QuiesceRequest{}); return err },
			"eval":     func() error { _, err := c.Eval(ctx, &agentv1.EvalRequest{}); return err },
			"exec":     func() error { _, err := c.Exec(ctx, agentclient.ExecRequest{Args: []string{"x"}}); return err },
			"download": func() error { _, err := c.Download(ctx, "/x", "", new(bytes.Buffer)); return err },
			"upload":   func() error { return c.Upload(ctx, "/x", "", 0, strings.NewReader("")) },
			"defaults": func() error { return c.ChangeDefaults(ctx, agentclient.Defaults{}) },
			"inventory": func() error {
				parts, err := c.Inventory(ctx, false)
				if err != nil {
					return err
				}
				defer parts.Close()
				for parts.Receive() {
				}
				return parts.Err()
			},
		} {
			err := do()
			if err == nil {
				t.Errorf("%s, %s: no error", name, call)
				continue
			}
			texts := []string{err.Error()}
			var remote *connect.Error
			if errors.As(err, &remote) {
				texts = append(texts, remote.Message(), remote.Error())
			}
			for _, text := range texts {
				bad := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' })
				if len(text) > 5000 || bad >= 0 {
					t.Errorf("%s, %s: the error has %d bytes, the first bad one at %d", name, call, len(text), bad)
				}
			}
		}
	}
}
