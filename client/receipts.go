package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/forkd/forkd/api"
)

// SandboxReceipt returns the receipt of a sandbox's fork, or of its last rollback. The receipt
// outlives the sandbox.
func (c *Client) SandboxReceipt(ctx context.Context, id string) (api.Receipt, error) {
	var out api.Receipt
	return out, c.call(ctx, http.MethodGet, sandboxPath(id, "/receipt"), nil, &out)
}

// SnapshotReceipt returns the receipt of a snapshot. The receipt outlives the snapshot.
func (c *Client) SnapshotReceipt(ctx context.Context, tag string) (api.Receipt, error) {
	var out api.Receipt
	return out, c.call(ctx, http.MethodGet, snapshotPath(tag, "/receipt"), nil, &out)
}

// ReceiptFilter selects receipts. The zero value selects the newest 100.
type ReceiptFilter struct {
	Sandbox  string        // ID; selects the receipts of its fork, rollback, pause and resume
	Snapshot string        // excludes Sandbox
	Op       api.ReceiptOp // if empty, all operations
	Limit    int           // 1 to 1000; 0 means 100
}

// ListReceipts returns receipts, newest first.
func (c *Client) ListReceipts(ctx context.Context, f ReceiptFilter) ([]api.Receipt, error) {
	q := url.Values{}
	for name, v := range map[string]string{"sandbox": f.Sandbox, "snapshot": f.Snapshot, "op": string(f.Op)} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	path := "/v1/receipts"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	var out []api.Receipt
	return out, c.call(ctx, http.MethodGet, path, nil, &out)
}
