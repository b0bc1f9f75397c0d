package sandboxes

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/linetime"
)

// console sends plain text of unknown encoding. Browsers must not guess its type.
func (s *sandboxRoutes) console(w http.ResponseWriter, r *http.Request) error {
	follow, lines, err := routing.LogQuery(r)
	if err != nil {
		return err
	}
	view, err := consoleView(r)
	if err != nil {
		return err
	}
	if follow {
		return s.followConsole(w, r, lines, view)
	}
	text, err := s.engine(r.Context()).Console(r.PathValue("id"))
	if err != nil {
		return err
	}
	defer text.Close()
	routing.PlainText(w)
	// The engine limits the size. A disconnected client is no error. Hide WriterTo, because it
	// might write the text in one piece.
	_, _ = io.Copy(viewed{w, view}, struct{ io.Reader }{text})
	return nil
}

// viewed writes a console without the marks of its lines' times.
type viewed struct {
	w    io.Writer
	view *linetime.View
}

func (v viewed) Write(b []byte) (int, error) {
	if out := v.view.Append(nil, b); len(out) > 0 {
		if _, err := v.w.Write(out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// followConsole streams until the sandbox has ended or the client disconnects.
func (s *sandboxRoutes) followConsole(w http.ResponseWriter, r *http.Request, lines int, view *linetime.View) error {
	if _, err := s.engine(r.Context()).Get(r.PathValue("id")); err != nil {
		return err
	}
	routing.PlainText(w)
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	_ = control.Flush() // the client sees that it is connected
	err := s.engine(r.Context()).FollowConsole(r.Context(), r.PathValue("id"), lines, func(b []byte) error {
		if _, err := (viewed{w, view}).Write(b); err != nil {
			return err
		}
		return control.Flush()
	})
	if err != nil {
		panic(http.ErrAbortHandler) // the status is sent: reset the connection, so that the client does not see a normal end
	}
	return nil
}

// consoleView parses timestamps and since.
func consoleView(r *http.Request) (_ *linetime.View, err error) {
	q, view := r.URL.Query(), new(linetime.View)
	if v := q.Get("timestamps"); v != "" {
		if view.Times, err = strconv.ParseBool(v); err != nil {
			return nil, apierror.New(api.CodeInvalid, "", "timestamps %q: want true or false", ellipsis.Clip(v, 40))
		}
	}
	if v := q.Get("since"); v != "" {
		if view.Since, err = time.Parse(time.RFC3339, v); err != nil {
			return nil, apierror.New(api.CodeInvalid, "",
				"since %q: want a time such as 2026-01-02T15:04:05Z", ellipsis.Clip(v, 40))
		}
	}
	return view, nil
}
