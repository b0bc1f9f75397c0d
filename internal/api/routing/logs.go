package routing

import (
	"net/http"
	"strconv"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// PlainText sets the headers of an answer that is text of a guest, which browsers must not guess to be a page.
func PlainText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

// LogQuery parses follow and tail. lines is -1 for all.
func LogQuery(r *http.Request) (follow bool, lines int, err error) {
	q := r.URL.Query()
	if v := q.Get("follow"); v != "" {
		if follow, err = strconv.ParseBool(v); err != nil {
			return false, 0, apierror.New(api.CodeInvalid, "", "follow %q: want true or false", ellipsis.Clip(v, 40))
		}
	}
	lines = -1
	if v := q.Get("tail"); v != "" {
		if lines, err = strconv.Atoi(v); err != nil || lines < 0 {
			return false, 0, apierror.New(api.CodeInvalid, "", "tail %q: want a number of lines", ellipsis.Clip(v, 40))
		}
		if !follow {
			return false, 0, apierror.New(api.CodeInvalid, "", "tail goes with follow=true")
		}
	}
	return follow, lines, nil
}
