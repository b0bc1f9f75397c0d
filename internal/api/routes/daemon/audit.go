package daemon

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

// auditRoutes read the audit log. Only the operator may use them, because the log has the actions
// of all tenants.
type auditRoutes struct {
	askers  auth.Askers
	streams *Streams
	path    string // if empty, there is no audit log
}

type verifyInput struct {
	Head []string `query:"head,explode" doc:"[CHAIN:]SEQ:HASH of a line that was noted earlier; may be repeated" maxItems:"100"`
}

func (s *auditRoutes) add(rt *routing.Router) {
	tags := []string{"audit"}
	query := func(name, what, kind string) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: what, Schema: &huma.Schema{Type: kind}}
	}
	rt.RawRoute(huma.Operation{
		OperationID: "audit", Method: http.MethodGet, Path: "/v1/audit", Tags: tags,
		Summary: "The audit log's lines, oldest first; for the operator",
		Parameters: []*huma.Param{
			query("since", "Only from this time on, RFC 3339", "string"), query("sandbox", "Only of this sandbox", "string"),
			query("tenant", "Only of this tenant", "string"),
			query("action", "Filter by action, or by prefix if it ends in a dot", "string"),
			query("result", "Only with this result: ok, refused or failed", "string"),
			query("request", "Only this request, by its ID", "string"),
			query("changes", "Modifying actions only", "boolean"),
			query("limit", "The last so many lines; 0: all", "integer"), query("follow", "Follow new entries", "boolean"),
		},
		Responses: map[string]*huma.Response{"200": {Description: "A JSON object per line, docs/inside/formats/audit.md",
			Content: map[string]*huma.MediaType{routing.NDJSON: {Schema: &huma.Schema{Type: "object"}}}}},
		Errors: []int{400, 401, 403, 501},
	}, s.read)
	routing.Route(rt, huma.Operation{
		OperationID: "verify-audit", Method: http.MethodGet, Path: "/v1/audit/verify", Tags: tags,
		Summary: "Read all of the audit log and compare it with its chain of hashes; for the operator",
		Errors:  []int{400, 401, 403, 501},
	}, s.verify)
}

// allowed returns an error unless the sender is the operator.
func (s *auditRoutes) allowed(ctx context.Context) error {
	switch {
	case !s.askers.Operator(ctx):
		return apierror.New(api.CodeForbidden, "", "the audit log is the operator's")
	case s.path == "":
		return apierror.New(api.CodeUnsupported, "", "this daemon writes no audit log")
	}
	return nil
}

func (s *auditRoutes) verify(ctx context.Context, in *verifyInput) (*routing.Body[api.AuditReport], error) {
	if err := s.allowed(ctx); err != nil {
		return nil, err
	}
	var heads []audit.Head
	for _, text := range in.Head {
		h, err := audit.ParseHead(ellipsis.Clip(text, 200))
		if err != nil {
			return nil, apierror.New(api.CodeInvalid, "", "%v", err)
		}
		heads = append(heads, h)
	}
	r, err := audit.Verify(ctx, s.path, heads...)
	if err != nil {
		return nil, err
	}
	return routing.Answer(wireAuditReport(r)), nil
}

func wireAuditReport(r audit.Report) api.AuditReport {
	return api.AuditReport{
		OK: r.OK, Status: string(r.Status), Files: r.Files, Lines: r.Lines,
		First: r.First, Last: api.AuditHead(r.Last), Dropped: r.Dropped,
		Lost: r.Lost, Torn: r.Torn, Pending: r.Pending,
		Problems: wire.List(r.Problems, func(p audit.Problem) api.AuditProblem { return api.AuditProblem(p) }),
		Chains: wire.List(r.Chains, func(c audit.ChainReport) api.AuditChain {
			return api.AuditChain{Chain: c.Chain, Lines: c.Lines, First: c.First, Last: api.AuditHead(c.Last),
				Dropped: c.Dropped, Since: c.Since, Changes: c.Changes, Counted: c.Counted}
		}),
	}
}

func (s *auditRoutes) read(w http.ResponseWriter, r *http.Request) error {
	if err := s.allowed(r.Context()); err != nil {
		return err
	}
	q, err := auditQuery(r.URL.Query())
	if err != nil {
		return err
	}
	account := membudget.From(r.Context())
	q.Keep = func(n int) bool {
		if n < 0 {
			account.Release(int64(-n))
			return true
		}
		return account.Charge(int64(n))
	}
	ctx, stop := s.streams.context(r.Context())
	defer stop()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", routing.NDJSON)
	if q.Follow {
		w.WriteHeader(http.StatusOK)
		_ = out.Flush() // the client sees that it is connected
	}
	begun := q.Follow
	err = audit.Read(ctx, s.path, q, func(line []byte, _ audit.Entry) error {
		begun = true
		if _, err := w.Write(append(line[:len(line):len(line)], '\n')); err != nil || !q.Follow {
			return err
		}
		return out.Flush()
	})
	switch {
	case err == nil, q.Follow && errors.Is(err, sandbox.ErrClosing):
		return nil
	case begun:
		panic(http.ErrAbortHandler) // the status is sent: reset the connection, so that the client does not see a normal end
	case errors.Is(err, audit.ErrNoRoom):
		return apierror.New(api.CodeBusy, "",
			"the last %d lines need more memory than a request can have now: ask for fewer lines, "+
				"or for all of them with limit=0", q.Last)
	}
	return err
}

// defaultAuditLimit is the default number of lines.
const defaultAuditLimit = 1000

// auditQuery parses the selection of lines.
func auditQuery(v url.Values) (q audit.Query, err error) {
	q = audit.Query{Last: defaultAuditLimit, Filter: audit.Filter{
		Sandbox: sandbox.CanonicalID(v.Get("sandbox")), Tenant: v.Get("tenant"), Action: v.Get("action"),
		Result: audit.Result(v.Get("result")), Request: v.Get("request"),
	}}
	bad := func(name, want string) error {
		return apierror.New(api.CodeInvalid, "", "%s %q: want %s", name, ellipsis.Clip(v.Get(name), 80), want)
	}
	switch q.Result {
	case "", audit.OK, audit.Refused, audit.Failed:
	default:
		return q, bad("result", "ok, refused or failed")
	}
	if t := v.Get("since"); t != "" {
		if q.Since, err = time.Parse(time.RFC3339, t); err != nil {
			return q, bad("since", "a time such as 2026-01-02T15:04:05Z")
		}
	}
	if n := v.Get("limit"); n != "" {
		if q.Last, err = strconv.Atoi(n); err != nil || q.Last < 0 || q.Last > 1_000_000 {
			return q, bad("limit", "0 to 1000000")
		}
	}
	for name, to := range map[string]*bool{"changes": &q.Changes, "follow": &q.Follow} {
		if b := v.Get(name); b != "" {
			if *to, err = strconv.ParseBool(b); err != nil {
				return q, bad(name, "true or false")
			}
		}
	}
	return q, nil
}
