package httpapi

import (
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/domain/principal"
)

// profilePath is the prefix of the profiles. They are not part of the API, so no document lists
// them, and they are on Unix sockets only: a profile has the daemon's arguments and addresses, and
// costs CPU time.
const profilePath = "/debug/pprof/"

// maxProfile limits the seconds of a CPU profile or a trace.
const maxProfile = 5 * time.Minute

// serveProfiles serves profiles of the daemon to its operator. On other listeners than Unix sockets
// there is no such path.
func (s *Server) serveProfiles(access auth.Access, next http.Handler) http.Handler {
	if !access.Local {
		return next
	}
	profiles := http.NewServeMux()
	profiles.HandleFunc("GET "+profilePath, pprof.Index)
	profiles.HandleFunc("GET "+profilePath+"cmdline", pprof.Cmdline)
	profiles.HandleFunc("GET "+profilePath+"profile", pprof.Profile)
	profiles.HandleFunc("GET "+profilePath+"symbol", pprof.Symbol)
	profiles.HandleFunc("GET "+profilePath+"trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, profilePath) {
			next.ServeHTTP(w, r)
			return
		}
		if err := checkProfile(r); err != nil {
			respond.Error(w, s.answers.Failed(r.Context(), err))
			return
		}
		profiles.ServeHTTP(w, r)
	})
}

// checkProfile returns an error unless the operator requests a profile of reasonable length.
func checkProfile(r *http.Request) error {
	if who := principal.From(r.Context()); !who.Operator() || !who.May(principal.Admin) {
		return apierror.New(api.CodeForbidden, api.ReasonOperatorOnly, "only the operator can read profiles")
	}
	text := r.URL.Query().Get("seconds")
	if text == "" {
		return nil
	}
	if d, err := time.ParseDuration(text + "s"); err != nil || d < 0 || d > maxProfile {
		return apierror.New(api.CodeInvalid, "", "seconds %.20q: want 0 to %.0f", text, maxProfile.Seconds())
	}
	return nil
}
