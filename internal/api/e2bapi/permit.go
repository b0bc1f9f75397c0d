package e2bapi

import (
	"net/http"
	"strings"

	"github.com/forkd/forkd/internal/domain/principal"
)

// permit refuses a key without the scope a route needs. The existence of the object is checked
// first, so that "forbidden" is returned only for the caller's own objects.
func (h *Handler) permit(c call, scope principal.Scopes) error {
	if scope == 0 || c.who.May(scope) {
		return nil
	}
	if err := h.there(c); err != nil {
		return err
	}
	return lacks(scope)
}

func lacks(scope principal.Scopes) *apiError {
	return failf(http.StatusForbidden, "the API key lacks the scope %s", scope)
}

// there returns an error if the object in the path does not exist for the caller.
func (h *Handler) there(c call) error {
	if c.PathValue("id") == "" {
		return nil
	}
	var err error
	if strings.Contains(c.Pattern, "/sandboxes/") {
		_, err = h.find(c)
	} else if _, built := (builds{h}).template(c.who.Tenant, c.PathValue("id")); !built && c.PathValue("id") != "aliases" {
		_, err = snapshots{h}.findTemplate(c, c.PathValue("id"))
	}
	return err
}

// tokensFor removes a sandbox's tokens unless the caller may use it, because a token gives access
// to any holder.
func (s createdSandbox) tokensFor(who principal.Principal) createdSandbox {
	if !who.May(principal.Run) {
		s.EnvdToken, s.TrafficToken = "", nil
	}
	return s
}
