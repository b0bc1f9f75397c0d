package services

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/servicewire"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// maxWait limits how long a request waits for services.
const maxWait = 10 * time.Minute

// AddRoutes adds the routes about services. See package servicewire.
func (s *Supervisor) AddRoutes(mux *http.ServeMux) {
	handle := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(servicewire.Header, servicewire.HeaderValue)
			w.Header().Set(servicewire.StopHeader, "1")
			if err := h(w, r); err != nil {
				refuse(w, err)
			}
		})
	}
	handle("GET "+servicewire.Path, s.serveList)
	handle("PUT "+servicewire.Path+"/{name}", s.serveDeclare)
	handle("POST "+servicewire.Path+"/{name}", s.serveChange)
	handle("DELETE "+servicewire.Path+"/{name}", func(w http.ResponseWriter, r *http.Request) error {
		if err := s.Remove(r.Context(), r.PathValue("name")); err != nil {
			return err
		}
		return s.serveList(w, r)
	})
	handle("GET "+servicewire.Path+"/{name}"+servicewire.LogSuffix, s.serveLog)
}

// refuse sends an error in the form of the agent's plain routes.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status(err))
	_ = json.NewEncoder(w).Encode(map[string]any{"code": status(err), "message": servicespec.ClipError(err)})
}

func status(err error) int {
	switch {
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrFull):
		return http.StatusConflict
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusBadRequest
}

// serveList waits for settled services if the query has wait_ms.
func (s *Supervisor) serveList(w http.ResponseWriter, r *http.Request) error {
	wait, err := queryNumber(r, "wait_ms", 0, maxWait.Milliseconds())
	if err != nil {
		return err
	}
	list := s.List()
	if wait > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), time.Duration(wait)*time.Millisecond)
		defer cancel()
		list = s.Await(ctx)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
	return nil
}

func (s *Supervisor) serveDeclare(w http.ResponseWriter, r *http.Request) error {
	var spec servicespec.Spec
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, servicewire.MaxSpecBytes)).Decode(&spec); err != nil {
		return err
	}
	spec.Name = r.PathValue("name")
	if err := s.Declare(r.Context(), spec); err != nil {
		return err
	}
	return s.serveList(w, r)
}

func (s *Supervisor) serveChange(w http.ResponseWriter, r *http.Request) error {
	var do servicewire.Action
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&do); err != nil {
		return err
	}
	if err := s.Do(r.Context(), r.PathValue("name"), do.Do); err != nil {
		return err
	}
	return s.serveList(w, r)
}

// serveLog sends the kept output of a service, or its last lines, and follows it on request.
func (s *Supervisor) serveLog(w http.ResponseWriter, r *http.Request) error {
	lines, err := queryNumber(r, "tail", -1, 1<<20)
	if err != nil {
		return err
	}
	follow := r.URL.Query().Get("follow") == "true"
	reader, err := s.Log(r.PathValue("name"), int(lines))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	for {
		if err := reader.Copy(w); err != nil {
			return nil // the caller has left
		}
		if !follow {
			return nil
		}
		if err := control.Flush(); err != nil || !reader.Wait(r.Context()) {
			return nil
		}
	}
}

// queryNumber returns a number of the query, or none if it has none.
func queryNumber(r *http.Request, name string, none, most int64) (int64, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return none, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, errors.New(name + ": want a number from 0 to " + strconv.FormatInt(most, 10))
	}
	return n, nil
}
