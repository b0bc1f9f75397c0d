package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
)

// ForkResult is the result of a fork.
type ForkResult struct {
	// Sandboxes has one entry per requested child, by index. A failed child has Error set and no
	// ID.
	Sandboxes []api.SandboxInfo
	// PoolReady is the number of ready shells (pre-created VMMs) when the request arrived.
	PoolReady int
	// ArmedWall is the time from the request to the last child restored at its start gate.
	// ReadyWall is the time to the last confirmed identity. The daemon measures both.
	ArmedWall, ReadyWall time.Duration
}

// OK returns the children without an error.
func (r ForkResult) OK() []api.SandboxInfo { return r.only(false) }

// Failed returns the children with an error.
func (r ForkResult) Failed() []api.SandboxInfo { return r.only(true) }

func (r ForkResult) only(failed bool) []api.SandboxInfo {
	var out []api.SandboxInfo
	for _, sb := range r.Sandboxes {
		if (sb.Error != "") == failed {
			out = append(out, sb)
		}
	}
	return out
}

// Fork makes req.N children of a snapshot, 1 to api.MaxFork. It returns an error only if no child
// was made.
func (c *Client) Fork(ctx context.Context, req api.CreateSandboxesRequest) (ForkResult, error) {
	var res ForkResult
	h, err := c.callHeader(ctx, http.MethodPost, "/v1/sandboxes", req, &res.Sandboxes)
	if err != nil {
		return ForkResult{}, err
	}
	all := res.Sandboxes
	res = forkHeaders(h)
	res.Sandboxes = all
	return res, nil
}

// ForkOnce is like Fork, with a key of the request. A repetition with the same key and the same request, within ten
// minutes and at the same daemon, returns the sandboxes of the first one.
func ForkOnce(ctx context.Context, c *Client, key string, req api.CreateSandboxesRequest) (ForkResult, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return ForkResult{}, fmt.Errorf("encode request: %w", err)
	}
	resp, err := c.send(ctx, http.MethodPost, "/v1/sandboxes", bytes.NewReader(b),
		http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {key}})
	if err != nil {
		return ForkResult{}, err
	}
	defer resp.Body.Close()
	res := forkHeaders(resp.Header)
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&res.Sandboxes); err != nil {
		return ForkResult{}, cmp.Or(endOf(err), fmt.Errorf("decode the daemon's answer to a fork: %w", err))
	}
	return res, nil
}

// forkHeaders reads the totals of a fork. They are zero for the original's daemon, which does not
// send them.
func forkHeaders(h http.Header) (res ForkResult) {
	res.PoolReady, _ = strconv.Atoi(h.Get(api.HeaderPoolReady))
	res.ArmedWall = micros(h.Get(api.HeaderArmedWall))
	res.ReadyWall = micros(h.Get(api.HeaderReadyWall))
	return res
}

// ForkEach is like Fork, and also calls each with every child when it is ready or has failed, in
// this order. The calls come one after another. A daemon without streams (the original's) returns
// all children at the end.
func (c *Client) ForkEach(ctx context.Context, req api.CreateSandboxesRequest,
	each func(api.SandboxInfo)) (ForkResult, error) {
	resp, err := c.stream(ctx, "/v1/sandboxes", req)
	if err != nil {
		return ForkResult{}, err
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "application/x-ndjson" {
		res := forkHeaders(resp.Header)
		if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&res.Sandboxes); err != nil {
			return ForkResult{}, cmp.Or(endOf(err), fmt.Errorf("decode the daemon's answer to a fork: %w", err))
		}
		for _, sb := range res.Sandboxes {
			each(sb)
		}
		return res, nil
	}
	res, err := forkLines(c.url, json.NewDecoder(resp.Body), each)
	slices.SortFunc(res.Sandboxes, func(a, b api.SandboxInfo) int { return cmp.Compare(a.Index, b.Index) })
	return res, err
}

// forkLines reads the stream of a fork to its end.
func forkLines(url string, lines *json.Decoder, each func(api.SandboxInfo)) (res ForkResult, err error) {
	for {
		var line api.ForkLine
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF):
			return res, brokenOff(url, http.MethodPost, io.ErrUnexpectedEOF)
		case err != nil:
			return res, cmp.Or(endOf(err), fmt.Errorf("read the fork's children: %w", err))
		case line.Error != nil:
			return res, streamed(line.Error)
		case line.Fork != nil:
			t := line.Fork
			res.PoolReady, res.ArmedWall, res.ReadyWall = t.PoolReady, millis(t.ArmedWallMS), millis(t.ReadyWallMS)
			return res, nil
		case line.Child != nil:
			res.Sandboxes = append(res.Sandboxes, *line.Child)
			each(*line.Child)
		}
	}
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func micros(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n) * time.Microsecond
}

// ListSandboxes returns all sandboxes, oldest first. Filters select some, such as
// "label=job=7" or "status=paused". The daemon describes the known ones in its error about an unknown one.
func (c *Client) ListSandboxes(ctx context.Context, filters ...string) ([]api.SandboxInfo, error) {
	var out []api.SandboxInfo
	return out, c.call(ctx, http.MethodGet, listPath("/v1/sandboxes", filters), nil, &out)
}

// Sandbox returns the description of one sandbox.
func (c *Client) Sandbox(ctx context.Context, id string) (api.SandboxInfo, error) {
	var out api.SandboxInfo
	return out, c.call(ctx, http.MethodGet, sandboxPath(id, ""), nil, &out)
}

// KillOption changes the extent of Kill.
type KillOption func(query url.Values)

// KillTree makes Kill end the sandbox's whole tree of guest forks. Any sandbox of the tree may be
// named. No sandbox of the tree can fork meanwhile.
func KillTree(query url.Values) { query.Set("tree", "true") }

// Kill ends a sandbox. If the sandbox has already ended, Kill returns a not-found error.
func (c *Client) Kill(ctx context.Context, id string, options ...KillOption) error {
	query := url.Values{}
	for _, o := range options {
		o(query)
	}
	path := sandboxPath(id, "")
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil)
}

// EndTree ends a sandbox and its whole tree of guest forks, and returns the IDs of all ended
// sandboxes. No sandbox of the tree can fork meanwhile.
func EndTree(ctx context.Context, c *Client, id string) (ended []string, err error) {
	h, err := c.callHeader(ctx, http.MethodDelete, sandboxPath(id, "")+"?tree=true", nil, nil)
	if err != nil {
		return nil, err
	}
	if ids := h.Get(api.HeaderEnded); ids != "" {
		return strings.Split(ids, ","), nil
	}
	return []string{id}, nil // a daemon that does not send the list
}

// Memory returns the host memory a sandbox uses.
func (c *Client) Memory(ctx context.Context, id string) (api.MemoryUse, error) {
	var out api.MemoryUse
	return out, c.call(ctx, http.MethodGet, sandboxPath(id, "/memory"), nil, &out)
}

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// ConsoleOptions select lines of a guest's console.
type ConsoleOptions struct {
	Times bool // begin each line with its time in UTC and a space, or with "- " if the time is unknown
	// Since omits lines with an earlier time. The zero value omits none. Lines of an unknown time,
	// such as all of a sandbox made by an older daemon, are never omitted.
	Since time.Time
}

func (o ConsoleOptions) query() url.Values {
	q := url.Values{}
	if o.Times {
		q.Set("timestamps", "true")
	}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.UTC().Format(time.RFC3339Nano))
	}
	return q
}

// Console returns the last part of the guest's console output. Of several options, the last applies.
func (c *Client) Console(ctx context.Context, id string, opt ...ConsoleOptions) (string, error) {
	return c.text(ctx, withQuery(sandboxPath(id, "/console"), optionsOf(opt).query()))
}

func optionsOf(opt []ConsoleOptions) (o ConsoleOptions) {
	if len(opt) > 0 {
		o = opt[len(opt)-1]
	}
	return o
}

// FollowConsole writes the last lines of the console and then new output, until the sandbox or ctx
// ends. If lines is negative, it begins with all output the daemon has.
func (c *Client) FollowConsole(ctx context.Context, id string, lines int, w io.Writer, opt ...ConsoleOptions) error {
	q := optionsOf(opt).query()
	q.Set("follow", "true")
	if lines >= 0 {
		q.Set("tail", strconv.Itoa(lines))
	}
	path := withQuery(sandboxPath(id, "/console"), q)
	resp, err := c.send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("the console of %s: %w", id, err)
	}
	return nil
}

// Ping returns nil if the agent in the guest answers.
func (c *Client) Ping(ctx context.Context, id string) (api.PingResponse, error) {
	var out api.PingResponse
	return out, c.call(ctx, http.MethodPost, sandboxPath(id, "/ping"), nil, &out)
}

// Exec runs a program to its end and collects its output. A program that fails is not an error: see
// ExitCode of the answer.
func (c *Client) Exec(ctx context.Context, id string, req api.ExecRequest) (api.ExecResponse, error) {
	var out api.ExecResponse
	return out, c.call(ctx, http.MethodPost, sandboxPath(id, "/exec"), req, &out)
}

// Eval runs code in the warmed interpreter. An exception in the code is not an error: see Error of
// the answer.
func (c *Client) Eval(ctx context.Context, id string, req api.EvalRequest) (api.EvalResponse, error) {
	var out api.EvalResponse
	return out, c.call(ctx, http.MethodPost, sandboxPath(id, "/eval"), req, &out)
}

func sandboxPath(id, rest string) string { return "/v1/sandboxes/" + url.PathEscape(id) + rest }
