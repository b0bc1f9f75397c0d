package mcp

import (
	"context"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// progress reports the progress of a call: done of total, and a message. Total 0 means unknown.
type progress func(done, total float64, message string)

// progressOf returns a progress for a call. It does nothing if the client did not ask for reports.
// The protocol requires each report to have more done than the last, so a report that has not is
// dropped.
func progressOf(ctx context.Context, req *sdk.CallToolRequest) progress {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func(float64, float64, string) {}
	}
	var mu sync.Mutex
	last := -1.0
	return func(done, total float64, message string) {
		mu.Lock()
		defer mu.Unlock()
		if done <= last {
			return
		}
		last = done
		// A report that does not arrive is no reason to stop the work.
		_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
			ProgressToken: token, Progress: done, Total: total, Message: message,
		})
	}
}
