package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/ui"
	"github.com/forkd/forkd/internal/domain/principal"
)

// sessionKey is the context key for the web session of a request.
type sessionKey struct{}

// takeSession removes the secrets of a web session from each request, before any guest sees it.
func (s *Server) takeSession(next http.Handler) http.Handler {
	if s.sessions == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shown := s.sessions.Take(r); shown != (ui.Shown{}) {
			*r = *r.WithContext(context.WithValue(r.Context(), sessionKey{}, shown))
		}
		next.ServeHTTP(w, r)
	})
}

// servePage serves the web page. Other requests of its sessions are authenticated with the
// credential of the login, so that a revoked key ends its sessions.
func (s *Server) servePage(access auth.Access, next http.Handler) http.Handler {
	if s.sessions == nil {
		return next
	}
	authenticate := s.Authenticator(access)
	page := &ui.Page{Sessions: s.sessions, Secure: access.Encrypted,
		LogIn: func(r *http.Request, credential string) error {
			try := r.Clone(r.Context())
			try.Header = http.Header{"Authorization": {"Bearer " + credential}}
			_, err := authenticate(try)
			return err
		},
		Identify: identify(authenticate),
		Refuse: func(w http.ResponseWriter, r *http.Request, err error) {
			switch {
			case errors.Is(err, ui.ErrBadLogin):
				err = apierror.New(api.CodeInvalid, "", "%v", err)
			case errors.Is(err, ui.ErrForeign):
				err = apierror.New(api.CodeForbidden, "", "%v", err)
			}
			respond.Error(w, s.answers.Failed(r.Context(), err))
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown, _ := r.Context().Value(sessionKey{}).(ui.Shown)
		if shown.Credential != "" && r.Header.Get("Authorization") == "" && r.Header.Get(api.HeaderKey) == "" {
			r.Header.Set("Authorization", "Bearer "+shown.Credential)
		}
		if !page.Serve(w, r, shown) {
			next.ServeHTTP(w, r)
		}
	})
}

// identify answers with the identity of a request's sender, or with 204 if it is nobody. Browsers
// report a 401 to their user.
func identify(authenticate func(*http.Request) (context.Context, error),
) func(http.ResponseWriter, *http.Request, ui.Shown) {
	return func(w http.ResponseWriter, r *http.Request, _ ui.Shown) {
		ctx, err := authenticate(r)
		if err != nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		who := principal.From(ctx)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(ui.Identity{Name: who.Name, Tenant: who.Tenant, Admin: who.May(principal.Admin)})
	}
}
