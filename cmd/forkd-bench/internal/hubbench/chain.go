package hubbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// Chain is the push of the last link of a chain whose other links the registry has.
type Chain struct {
	Links      int     `json:"links"`
	ChangedMiB int     `json:"changed_mib"` // of random data, by the last link
	MovedMiB   float64 `json:"moved_mib"`   // that the registry received
	Ratio      float64 `json:"ratio"`       // MovedMiB to ChangedMiB
}

// links is the number of links of the chain.
const links = 5

// chain makes a chain of snapshots, pushes it without its last link, and then with it. It removes the snapshots.
func (r *run) chain(ctx context.Context) (out Chain, err error) {
	out = Chain{Links: links, ChangedMiB: r.ChangedMiB}
	defer func() { err = errors.Join(err, r.clean(context.WithoutCancel(ctx))) }()
	below := ""
	for i := range links {
		r.Say(fmt.Sprintf("link %d of %d", i+1, links))
		req := api.CreateSnapshotRequest{Tag: fmt.Sprintf("%s-chain%d", madeTag, i+1), From: below}
		if below == "" {
			req.Image = r.Image
			req.Warm = fmt.Sprintf("_link = bytearray(%d << 20)\n_random = open('/dev/urandom', 'rb', 0)\n", r.ChangedMiB)
		}
		req.Warm += "_at = memoryview(_link)\nwhile _at: _at = _at[_random.readinto(_at):]\n"
		if _, err := r.Client.CreateSnapshot(ctx, req, nil); err != nil {
			return out, err
		}
		before := r.link.sent.Load()
		ref := fmt.Sprintf("%s/bench/chain:%d", r.link.direct, i+1)
		if _, err := r.Forkd(ctx, r.cache(), "push", req.Tag, ref, "--plain-http"); err != nil {
			return out, err
		}
		out.MovedMiB = float64(r.link.sent.Load()-before) / (1 << 20)
		below = req.Tag
	}
	out.Ratio = out.MovedMiB / float64(r.ChangedMiB)
	return out, nil
}

// clean deletes the snapshots of this benchmark, the last of a chain first. Those of lazy forks have the tag of the made
// one and a digest.
func (r *run) clean(ctx context.Context) error {
	list, err := r.Client.ListSnapshots(ctx)
	for i := len(list) - 1; i >= 0; i-- {
		if s := list[i]; s.Tag == madeTag || strings.HasPrefix(s.Tag, madeTag+"-") {
			err = errors.Join(err, measure.Delete(ctx, r.Client, s.Tag, client.DeleteOptions{}))
		}
	}
	return err
}

// received counts the bytes of requests.
func (l *link) received(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = body{r.Body, l}
		h.ServeHTTP(w, r)
	})
}

type body struct {
	io.ReadCloser
	l *link
}

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.l.sent.Add(int64(n))
	return n, err
}
