package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/hub"
)

// MaxPeers limits the peers of one request.
const MaxPeers = 16

// Snapshot is a snapshot that at least one peer has.
type Snapshot struct {
	Tag    string // whole, as the peer has it
	Owner  string // its tenant; empty for the operator
	Public bool   // all tenants may fork it

	c       *Client
	ctx     context.Context //nolint:containedctx // of one copy
	tag     string          // as asked
	tenant  string
	peers   []*peer
	current int  // the peer to ask first
	alone   bool // no other peer is asked

	raw      []byte
	artifact *hub.Artifact
}

// peer is a daemon that may have the snapshot.
type peer struct{ url *url.URL }

// Open asks peers in their order for the manifest of a snapshot. With a tenant it finds only what the tenant may fork.
func (c *Client) Open(ctx context.Context, urls []string, tag, tenant string) (*Snapshot, error) {
	if len(urls) == 0 || len(urls) > MaxPeers {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "", "%d peers, want 1 to %d", len(urls), MaxPeers)
	}
	s := &Snapshot{c: c, ctx: ctx, tag: tag, tenant: tenant}
	for _, text := range urls {
		u, err := c.peerOf(text)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.ErrForbidden, "", "%w", err)
		}
		s.peers = append(s.peers, &peer{url: u})
	}
	return s, s.describe()
}

// describe reads the manifest from the first peer that has it.
func (s *Snapshot) describe() error {
	var last error
	missing := true
	for i, p := range s.peers {
		err := s.manifestOf(p)
		if err == nil {
			s.current = i
			return nil
		}
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if last == nil || !isMissing(err) {
			last = err
		}
		missing = missing && isMissing(err)
	}
	if missing {
		return sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonSnapshotNotFound, "no peer has snapshot %s", s.tag)
	}
	return sandbox.Errorf(sandbox.ErrNoResources, "", "no peer sends snapshot %s; the last error: %w", s.tag, last)
}

func (s *Snapshot) manifestOf(p *peer) error {
	r, err := s.get(s.ctx, p, "", 0)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(r.Body, hub.MaxManifest+1))
	if err != nil {
		return fmt.Errorf("peer %s: %w", p.url.Host, err)
	}
	a, err := hub.ParseArtifact(raw)
	if err != nil {
		return fmt.Errorf("peer %s: %w", p.url.Host, err)
	}
	s.raw, s.artifact = raw, a
	h := r.Header
	s.Tag, s.Owner, s.Public = h.Get(api.HeaderSnapshotTag), h.Get(api.HeaderSnapshotOwner),
		h.Get(api.HeaderSnapshotPublic) == "true"
	return nil
}

// statusError is an answer other than the content.
type statusError struct {
	host   string
	status int
	text   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("peer %s answered %d: %s", e.host, e.status, e.text)
}

func isMissing(err error) bool {
	var s *statusError
	return errors.As(err, &s) && s.status == http.StatusNotFound
}

// get asks a peer for the manifest, or for a blob from an offset.
func (s *Snapshot) get(ctx context.Context, p *peer, digest string, from int64) (*http.Response, error) {
	key, err := s.c.key()
	if err != nil {
		return nil, fmt.Errorf("read the key for peers: %w", err)
	}
	u := *p.url
	u.Path = "/v1/snapshots/" + s.tag + "/artifact"
	if digest != "" {
		u.Path += "/" + digest
	}
	if s.tenant != "" {
		u.RawQuery = url.Values{"tenant": {s.tenant}}.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	want := http.StatusOK
	if from > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
		want = http.StatusPartialContent
	}
	resp, err := s.c.http.Do(r)
	if err != nil {
		var in *url.Error
		if errors.As(err, &in) {
			err = in.Err // without the URL
		}
		return nil, fmt.Errorf("peer %s: %w", p.url.Host, err)
	}
	if resp.StatusCode == want {
		return resp, nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	var e api.Error
	_ = json.Unmarshal(b, &e)
	return nil, &statusError{p.url.Host, resp.StatusCode, sandbox.Clip(e.Message)}
}

// Write writes the stream for hub.Open.
func (s *Snapshot) Write(w io.Writer) error {
	out := hub.Outgoing{Raw: s.raw, Artifact: s.artifact, Open: func(d hub.Descriptor) (io.ReadCloser, error) {
		return s.open(d), nil
	}}
	return out.Write(w, false)
}

// Receive lets receive make a snapshot of the stream. Wrong content can be of any peer that has sent a part of it, so
// each peer is then tried alone.
func (s *Snapshot) Receive(receive func(io.Reader) error) error {
	err := s.once(receive)
	if !errors.Is(err, sandbox.ErrInvalid) || len(s.peers) == 1 {
		return err
	}
	s.alone = true
	owner := *s
	for i, p := range s.peers {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if s.manifestOf(p) != nil {
			continue
		}
		if s.Tag != owner.Tag || s.Owner != owner.Owner || s.Public != owner.Public {
			continue // the caller has judged another answer
		}
		s.current = i
		if again := s.once(receive); !errors.Is(again, sandbox.ErrInvalid) {
			return again
		}
	}
	return err
}

func (s *Snapshot) once(receive func(io.Reader) error) error {
	r, w := io.Pipe()
	made := make(chan error, 1)
	go func() {
		err := s.Write(w)
		w.CloseWithError(err)
		made <- err
	}()
	err := receive(r)
	r.CloseWithError(io.ErrClosedPipe)
	if sent := <-made; err != nil && sent != nil && !errors.Is(sent, io.ErrClosedPipe) {
		return sandbox.Errorf(sandbox.ErrNoResources, "", "copy snapshot %s: %w", s.tag, sent)
	}
	return err
}
