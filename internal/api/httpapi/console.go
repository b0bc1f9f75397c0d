package httpapi

import (
	"io"
	"net/http"
	"strconv"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// console sends plain text of unknown encoding. Browsers must not guess its type.
func (s *sandboxRoutes) console(w http.ResponseWriter, r *http.Request) error {
	follow, lines, err := consoleQuery(r)
	if err != nil {
		return err
	}
	if follow {
		return s.followConsole(w, r, lines)
	}
	text, err := s.engine(r.Context()).Console(r.PathValue("id"))
	if err != nil {
		return err
	}
	defer text.Close()
	plainText(w)
	// The engine limits the size. A disconnected client is no error. Hide WriterTo, because it
	// might write the text in one piece.
	_, _ = io.Copy(w, struct{ io.Reader }{text})
	return nil
}

func plainText(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

// followConsole streams until the sandbox has ended or the client disconnects.
func (s *sandboxRoutes) followConsole(w http.ResponseWriter, r *http.Request, lines int) error {
	if _, err := s.engine(r.Context()).Get(r.PathValue("id")); err != nil {
		return err
	}
	plainText(w)
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	_ = control.Flush() // the client sees that it is connected
	err := s.engine(r.Context()).FollowConsole(r.Context(), r.PathValue("id"), lines, func(b []byte) error {
		if _, err := w.Write(b); err != nil {
			return err
		}
		return control.Flush()
	})
	if err != nil {
		panic(http.ErrAbortHandler) // the status is sent: reset the connection, so that the client does not see a normal end
	}
	return nil
}

// consoleQuery parses follow and tail. lines is -1 for all.
func consoleQuery(r *http.Request) (follow bool, lines int, err error) {
	q := r.URL.Query()
	if v := q.Get("follow"); v != "" {
		if follow, err = strconv.ParseBool(v); err != nil {
			return false, 0, fail(api.CodeInvalid, "", "follow %q: want true or false", ellipsis.Clip(v, 40))
		}
	}
	lines = -1
	if v := q.Get("tail"); v != "" {
		if lines, err = strconv.Atoi(v); err != nil || lines < 0 {
			return false, 0, fail(api.CodeInvalid, "", "tail %q: want a number of lines", ellipsis.Clip(v, 40))
		}
		if !follow {
			return false, 0, fail(api.CodeInvalid, "", "tail goes with follow=true")
		}
	}
	return follow, lines, nil
}
