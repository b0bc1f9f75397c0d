// Package respond writes answers: JSON values, and errors with the headers that belong to them. It logs the errors
// that are the daemon's own, and notes each for the audit log.
package respond

import (
	"context"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/domain/principal"
)

// Answers turn errors into answers, and log errors that concern the daemon.
type Answers struct{ Log *slog.Logger }

// Failed converts a handler's error, and logs errors of the daemon itself.
func (a Answers) Failed(ctx context.Context, err error) *apierror.Error {
	if silent := iodeadline.Silence(ctx); silent != nil {
		err = apierror.New(api.CodeRequestTimeout, "", "%v", silent)
	}
	f := apierror.From(err)
	if principal.KeyEnded(ctx) {
		f = apierror.KeyEnded()
	}
	if f.GetStatus() >= http.StatusInternalServerError && ctx.Err() == nil {
		a.Log.Error("request failed", "code", f.Code, "error", f.Message, requestinfo.From(ctx).LogAttr())
	}
	f.RequestID = requestinfo.ID(ctx)
	requestinfo.NoteError(ctx, f)
	return f
}

// Error writes an error as the whole answer.
func Error(w http.ResponseWriter, f *apierror.Error) {
	maps.Copy(w.Header(), f.GetHeaders())
	JSON(w, f.GetStatus(), f.Named(w.Header()))
}

// JSON writes a whole answer. It ignores a disconnected client.
func JSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = reply.Write(w, v)
}

// Accepts reports whether the client requested a content type by name.
func Accepts(header, contentType string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), contentType) {
			return true
		}
	}
	return false
}

// ServerLog logs messages of net/http about connections. Most of them concern clients.
func (a Answers) ServerLog() *log.Logger {
	return slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug)
}
