package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forkd/forkd/api"
)

// AuditRequest selects lines of the audit log. A zero field does not filter. Lines older than Since
// are left out.
type AuditRequest struct {
	Since time.Time // in any zone, sent in UTC
	// Sandbox and Request are IDs. An Action with a final dot selects all actions with that prefix.
	// Result is ok, refused or failed.
	Sandbox, Tenant, Action, Result, Request string
	Changes                                  bool // only actions that change something
	Limit                                    int  // the last Limit lines; 0: all
	Follow                                   bool // continue with new lines
}

func (r AuditRequest) path() string {
	q := url.Values{"limit": {strconv.Itoa(r.Limit)}}
	for name, v := range map[string]string{"sandbox": r.Sandbox, "tenant": r.Tenant, "action": r.Action,
		"result": r.Result, "request": r.Request} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if !r.Since.IsZero() {
		q.Set("since", r.Since.UTC().Format(time.RFC3339Nano))
	}
	for name, v := range map[string]bool{"changes": r.Changes, "follow": r.Follow} {
		if v {
			q.Set(name, "true")
		}
	}
	return "/v1/audit?" + q.Encode()
}

// Audit calls each with every selected line of the daemon's audit log. A line is one JSON object
// (docs/inside/formats/audit.md). With Follow, Audit waits for new lines until the daemon stops,
// each returns an error, or ctx ends. line is valid only during the call.
func (c records) Audit(ctx context.Context, req AuditRequest, each func(line []byte) error) error {
	return c.conn.lines(ctx, req.path(), each)
}

// VerifyAudit makes the daemon compare its audit log with its chain of hashes, and with the given
// earlier heads. A head is SEQ:HASH.
func (c records) VerifyAudit(ctx context.Context, heads ...string) (api.AuditReport, error) {
	path := "/v1/audit/verify"
	if len(heads) > 0 {
		path += "?" + url.Values{"head": heads}.Encode()
	}
	var out api.AuditReport
	return out, c.conn.call(ctx, http.MethodGet, path, nil, &out)
}
