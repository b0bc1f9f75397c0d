package e2bapi

import (
	"net/http"
	"strings"

	"github.com/forkd/forkd/internal/domain/principal"
)

// permit refuses a key that lacks what a route needs. Whether an object is there comes first: that
// it may not be touched is told of one's own only.
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

// there is an error if what the path names is not there for who asks.
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

// tokensFor leaves the tokens of a sandbox to who may use it: with them anybody can.
func (s createdSandbox) tokensFor(who principal.Principal) createdSandbox {
	if !who.May(principal.Run) {
		s.EnvdToken, s.TrafficToken = "", nil
	}
	return s
}
