package routing

import (
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// pathParam is a rule for a parameter in a route's path.
type pathParam struct {
	name string
	what string
	must *regexp.Regexp
	want string
}

// pathParams returns the rules. Every {tag}, {id} and {name} of any route must match its rule
// before a handler runs.
func pathParams() []pathParam {
	return []pathParam{
		{"tag", "tag", regexp.MustCompile(api.TagPattern), "1 to 64 letters, digits, - or _"},
		{"other", "tag", regexp.MustCompile(api.TagPattern), "1 to 64 letters, digits, - or _"},
		{"id", "sandbox id", regexp.MustCompile(api.IDPattern), "1 to 64 letters, digits, - or _"},
		{"port", "port", regexp.MustCompile("^[0-9]{1,5}$"), "1 to 65535"},
		{"key", "key", regexp.MustCompile(api.KeyPattern), "k and 12 hex digits"},
		{"secret", "secret", regexp.MustCompile(api.SecretPattern),
			"1 to 64 letters, digits, - or _, and a letter or _ first"},
		{"service", "service", regexp.MustCompile(api.ServicePattern),
			"1 to 32 small letters, digits, - or _, and a letter or digit first"},
		{"volume", "volume", regexp.MustCompile(api.VolumePattern), "1 to 63 letters, digits, - or _, and no - or _ first"},
		{"network", "network", regexp.MustCompile(api.PrivateNetworkPattern),
			"1 to 63 letters, digits, - or _, and no - or _ first"},
		{"digest", "digest", regexp.MustCompile("^sha256:[0-9a-f]{64}$"), "sha256: and 64 hex digits"},
		{"workspace", "workspace", regexp.MustCompile(api.TagPattern), "1 to 64 letters, digits, - or _"},
		{"name", "image name", regexp.MustCompile(api.ImagePattern), "1 to 64 letters, digits, - or _"},
	}
}

// checkParams checks the path parameters of a route. get returns "" for missing parameters.
func checkParams(rules []pathParam, get func(string) string) error {
	for _, p := range rules {
		if v := get(p.name); v != "" && !p.must.MatchString(v) {
			return apierror.New(api.CodeInvalid, "", "%s %q: want %s", p.what, ellipsis.Clip(v, 80), p.want)
		}
	}
	return nil
}

// named replaces another name of a sandbox by its ID, before a handler sees it.
func named(r *http.Request) {
	if id := r.PathValue("id"); id != "" {
		r.SetPathValue("id", sandbox.CanonicalID(id))
	}
}

// cleanPath reports whether a request's path is in canonical form. The mux would redirect other
// paths, and a client that follows could act on another object.
func cleanPath(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	c := path.Clean(p)
	return c == p || c+"/" == p
}

// unclean describes the problem of an unclean path. Usually it is an invalid name the client has
// escaped correctly.
func unclean(r *http.Request) *apierror.Error {
	for segment := range strings.SplitSeq(r.URL.EscapedPath(), "/") {
		name, err := url.PathUnescape(segment)
		if err == nil && name != segment && (strings.Contains(name, "/") || !cleanPath("/"+name)) {
			return apierror.New(api.CodeInvalid, "", "name %q: want 1 to 64 letters, digits, - or _", ellipsis.Clip(name, 80))
		}
	}
	return apierror.New(api.CodeInvalid, "", "the path is not in its shortest form")
}
