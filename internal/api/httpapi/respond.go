package httpapi

import (
	"context"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/api/requestinfo"
)

// answers turn errors into answers, and log errors that concern the daemon.
type answers struct{ log *slog.Logger }

// failed converts a handler's error, and logs errors of the daemon itself.
func (a answers) failed(ctx context.Context, err error) *apierror.Error {
	if silent := iodeadline.Silence(ctx); silent != nil {
		err = apierror.New(api.CodeRequestTimeout, "", "%v", silent)
	}
	f := apierror.From(err)
	if keyEnded(ctx) {
		f = errKeyEnded()
	}
	if f.GetStatus() >= http.StatusInternalServerError && ctx.Err() == nil {
		a.log.Error("request failed", "code", f.Code, "error", f.Message, requestinfo.From(ctx).LogAttr())
	}
	f.RequestID = requestinfo.ID(ctx)
	requestinfo.NoteError(ctx, f)
	return f
}

func writeFailure(w http.ResponseWriter, f *apierror.Error) {
	maps.Copy(w.Header(), f.GetHeaders())
	writeJSON(w, f.GetStatus(), f.Named(w.Header()))
}

// writeJSON writes a whole answer. It ignores a disconnected client.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = reply.Write(w, v)
}

func textResponse(description, contentType string) *huma.Response {
	return &huma.Response{
		Description: description,
		Content:     map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{Type: "string"}}},
	}
}

// accepts reports whether the client requested a content type by name.
func accepts(header, contentType string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), contentType) {
			return true
		}
	}
	return false
}

// serverLog logs messages of net/http about connections. Most of them concern clients.
func (a answers) serverLog() *log.Logger {
	return slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)
}
