package e2bapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/e2bapi/volumefiles"
	"github.com/forkd/forkd/internal/api/idempotency"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Default timeouts in seconds, by the API's version.
const (
	defaultTimeoutV1 = 15
	defaultTimeoutV2 = 300
)

// createRequest is the body of both versions. v2 has no field secure, because its sandboxes are
// always secure.
type createRequest struct {
	Template        string            `json:"templateID"`
	Timeout         *int64            `json:"timeout"`
	Secure          bool              `json:"secure"`
	Internet        *bool             `json:"allow_internet_access"`
	Metadata        map[string]string `json:"metadata"`
	Envs            map[string]string `json:"envVars"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Network *networkConfig  `json:"network"`
	IAM     json.RawMessage `json:"iam"`
	Volumes []volumeMount   `json:"volumeMounts"`
}

// create is POST /sandboxes and POST /v2/sandboxes.
func (h *Handler) create(c call, version int) (answer, error) {
	key := c.Header.Get("Idempotency-Key")
	if key == "" || version == 1 {
		made, err := h.createOnce(c, version)
		return answer{http.StatusCreated, made.tokensFor(c.who)}, err
	}
	earlier, end, err := h.repeats.Begin(c.who.Tenant, key, c.body, h.opt.Now())
	switch {
	case errors.Is(err, idempotency.ErrMismatch):
		e := failf(http.StatusUnprocessableEntity, "%s", err.Error())
		e.Word = "idempotency_request_mismatch"
		return answer{}, e
	case errors.Is(err, idempotency.ErrProgress):
		e := failf(http.StatusConflict, "%s", err.Error())
		e.Word = "idempotency_in_progress"
		return answer{}, e
	case errors.Is(err, idempotency.ErrFull):
		return answer{}, failf(http.StatusTooManyRequests, "%s", err.Error())
	case err != nil:
		return answer{}, invalidf("Idempotency-Key: %v", err)
	case earlier != nil:
		return answer{http.StatusCreated, earlier.tokensFor(c.who)}, nil
	}
	made, err := h.createOnce(c, version)
	if err != nil {
		end(nil)
		return answer{}, err
	}
	end(&made)
	return answer{http.StatusCreated, made.tokensFor(c.who)}, nil
}

func (h *Handler) createOnce(c call, version int) (createdSandbox, error) {
	var req createRequest
	if err := c.decode(&req); err != nil {
		return createdSandbox{}, err
	}
	plan, err := h.planOf(req, version)
	if err != nil {
		return createdSandbox{}, err
	}
	snap, err := h.templateSnapshot(c, &plan.rec)
	if err != nil {
		return createdSandbox{}, err
	}
	plan.tag, plan.rec.DiskMB = snap.Tag, int(snap.DiskLogicalBytes>>20)
	made, err := h.make(c, plan, 1)
	if err != nil {
		return createdSandbox{}, err
	}
	if made[0].err != nil {
		return createdSandbox{}, made[0].err
	}
	h.opt.Note(c.ctx, Act{Sandbox: made[0].info.ID})
	return h.created(made[0].known, c.Request), nil
}

// plan describes the sandboxes to create.
type plan struct {
	tag    string
	rec    records.Record // of each sandbox, without ID, tokens and times
	secure bool
	life   time.Duration

	network  *netpolicy.Spec
	isolated *bool
	volumes  []sandbox.VolumeMount
}

// volumeNames returns the names of the volumes to mount.
func (p *plan) volumeNames() (names []string) {
	for _, v := range p.volumes {
		names = append(names, v.Name)
	}
	return names
}

func (h *Handler) planOf(req createRequest, version int) (plan, error) {
	p := plan{secure: version == 2 || req.Secure}
	timeout := int64(defaultTimeoutV1)
	if version == 2 {
		timeout = defaultTimeoutV2
	}
	if req.Timeout != nil {
		timeout = *req.Timeout
	}
	var err error
	if p.life, err = seconds("timeout", timeout, 1); err != nil {
		return plan{}, err
	}
	resumes := req.AutoResume != nil && req.AutoResume.Enabled
	diskOnly := req.AutoPauseMemory != nil && !*req.AutoPauseMemory
	switch {
	case req.Template == "":
		return plan{}, invalidf("templateID is required")
	case len(req.IAM) > 0 && string(req.IAM) != "null" && string(req.IAM) != "{}":
		return plan{}, notYet("iam")
	case diskOnly && !req.AutoPause:
		return plan{}, invalidf("autoPauseMemory requires autoPause")
	case diskOnly && resumes:
		return plan{}, invalidf("autoPauseMemory false and autoResume exclude each other")
	case req.AutoPause && h.leases != nil:
		return plan{}, notYet("autoPause")
	}
	if err := checkMetadata(req.Metadata); err != nil {
		return plan{}, err
	}
	if err := checkEnvs(req.Envs); err != nil {
		return plan{}, err
	}
	if p.volumes, err = mounts(h, req.Volumes); err != nil {
		return plan{}, err
	}
	p.rec = records.Record{Template: req.Template, Metadata: req.Metadata, Envs: req.Envs, Pause: req.AutoPause,
		PauseDisk: diskOnly, AutoResume: resumes, Internet: req.Internet}
	return p, p.setNetwork(withPorts(req, h.opt.PrivatePorts))
}

// withPorts returns a request that sets the public ports explicitly, if ports are private by
// default.
func withPorts(req createRequest, private bool) createRequest {
	cfg := networkConfig{}
	if req.Network != nil {
		cfg = *req.Network
	}
	if private && cfg.Public == nil {
		cfg.Public = new(bool)
		req.Network = &cfg
	}
	return req
}

// maxMetadata limits a sandbox's metadata in bytes, because every list repeats it.
const maxMetadata = 64 << 10

func checkMetadata(all map[string]string) error {
	n := 0
	for k, v := range all {
		n += len(k) + len(v)
	}
	if n > maxMetadata {
		return invalidf("metadata: its keys and values have %d bytes, want at most %d", n, maxMetadata)
	}
	return nil
}

// checkEnvs refuses variables no process can have in its environment.
func checkEnvs(envs map[string]string) error {
	for k, v := range envs {
		if k == "" || containsAny(k, "=\x00") || containsAny(v, "\x00") {
			return invalidf("envVars: %q is no name of a variable, or its value has a zero byte", sandbox.Clip(k))
		}
	}
	return nil
}

func (p *plan) setNetwork(req createRequest) error {
	cfg := networkConfig{}
	if req.Network != nil {
		cfg = *req.Network
	}
	spec, err := cfg.policy(req.Internet)
	if err != nil {
		return err
	}
	p.network, p.rec.Network, p.rec.MaskHost, p.rec.HTTPSPorts = &spec, cfg.shown(), cfg.MaskHost, cfg.HTTPSPorts
	if cfg.Public != nil {
		closed := !*cfg.Public
		p.isolated = &closed
	}
	return nil
}

// env returns the environment of programs.
func (p *plan) env() map[string]string {
	env := map[string]string{"E2B_SANDBOX": "true", "E2B_TEMPLATE_ID": p.rec.Template}
	maps.Copy(env, p.rec.Envs)
	return env
}

// firstLife returns the plan's time in the engine's form. It applies from a sandbox's start, in
// case the daemon ends before it writes the record. The life is empty for an engine without
// deadlines.
func (h *Handler) firstLife(p plan) sandbox.Life {
	if h.leases != nil {
		return sandbox.Life{}
	}
	l := sandbox.Life{TTL: p.life, AtEnd: sandbox.AtEndKill, AutoResume: p.rec.AutoResume}
	if p.rec.Pause {
		l.AtEnd, l.FilesystemOnly = sandbox.AtEndPause, p.rec.PauseDisk
	}
	return l
}

// child is one requested sandbox.
type child struct {
	known
	err error
}

// make forks sandboxes by a plan and records them. It ends sandboxes that cannot be recorded.
func (h *Handler) make(c call, p plan, n int) ([]child, error) {
	h.opt.Note(c.ctx, Act{Snapshot: p.tag, Count: n})
	// Labels mirror the metadata that keep their rules, for filters of the other clients. The record stays the
	// truth for E2B's clients: their keys may have spaces, and their values are larger.
	req := sandbox.ForkRequest{Tag: p.tag, N: n, Env: p.env(), Network: p.network, PrivatePorts: p.isolated,
		Life: h.firstLife(p), Labels: labels.Fitting(p.rec.Metadata), Volumes: p.volumes}
	done, err := h.files.Free(c.ctx, volumefiles.Sender{Engine: c.engine, Tenant: c.who.Tenant}, p.volumeNames())
	if err != nil {
		return nil, err
	}
	res, err := c.engine.Fork(c.ctx, req)
	done()
	if err == nil {
		err = allFailed(res)
	}
	if err != nil {
		return nil, err
	}
	return h.recordAll(c.ctx, p, res), nil
}

func (h *Handler) recordAll(ctx context.Context, p plan, res sandbox.ForkResult) []child {
	out := make([]child, 0, len(res.Children))
	for _, f := range res.Children {
		if f.Err != nil {
			out = append(out, child{err: f.Err})
			continue
		}
		rec, err := h.record(ctx, p, f.Info)
		out = append(out, child{known{f.Info, rec, true}, err})
	}
	return out
}

// record writes the record of a new sandbox. If its client has disconnected, or the record cannot
// be written, record removes the sandbox.
func (h *Handler) record(ctx context.Context, p plan, info sandbox.Info) (records.Record, error) {
	rec := p.rec
	rec.ID, rec.Started = info.ID, h.opt.Now()
	rec.End = rec.Started.Add(p.life)
	// Private ports close the agent as well: it reaches more than any port.
	rec.OpenAgent = !p.secure && !info.PrivatePorts()
	err := ctx.Err()
	if err == nil {
		rec, err = h.opt.Records.Settle(rec, true, newToken)
	}
	if err == nil {
		err = h.opt.Lives.SetLife(ctx, rec.ID, lifeOf(rec))
	}
	if err == nil {
		return rec, nil
	}
	clean := context.WithoutCancel(ctx)
	if killErr := h.opt.Engine.Kill(clean, info.ID); killErr != nil && !isNotFound(killErr) {
		h.opt.Log.Error("end a sandbox that could not be recorded", "sandbox", info.ID, "error", killErr)
		return records.Record{}, &apiError{Code: http.StatusInternalServerError, Message: err.Error(), leftSomething: true}
	}
	h.forget(info.ID)
	return records.Record{}, err
}

func lifeOf(r records.Record) Life {
	return Life{End: r.End, Pause: r.Pause, FilesystemOnly: r.PauseDisk, AutoResume: r.AutoResume}
}

// newToken returns 256 random bits, in the alphabet of E2B's tokens.
func newToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func allFailed(res sandbox.ForkResult) error {
	var first error
	for _, c := range res.Children {
		if c.Err == nil {
			return nil
		}
		if first == nil {
			first = c.Err
		}
	}
	return first
}
