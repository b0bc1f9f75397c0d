package gateway

import (
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// kind is the way to serve a request.
type kind int

const (
	toAny       kind = iota // any node
	toSandbox               // the node in the id
	toFork                  // a chosen node, or several
	toCreate                // E2B's create: a chosen node
	toMake                  // a new snapshot or image: a chosen node
	toWorkspace             // a new workspace: a chosen node
	toList                  // all nodes
	toPages                 // one node after the other
	toEvents                // all nodes, as a stream
	toObject                // a node that has the object
	toKeep                  // the node of the compared sandboxes
	toNode                  // the node in the header Forkd-Node
)

// String returns the kind's name in metrics.
func (k kind) String() string {
	return [...]string{"any", "sandbox", "fork", "create", "make", "workspace", "list", "pages", "events", "object",
		"keep", "node"}[k]
}

// target is the result of a look at Host, headers and path.
type target struct {
	kind kind
	// id is the sandbox of a toSandbox.
	id string
	// resumes reports whether the request is the resume of a toSandbox.
	resumes bool
	// guest reports whether the request needs the guest of a toSandbox.
	guest bool
	// port reports whether the request is for a port of a toSandbox.
	port bool
	// probe is the path that tells whether a node has the object of a toObject. tag is its snapshot, if it is one.
	probe, tag string
	// other is a second snapshot that has to be on the same node, or empty.
	other string
	// list is the list of a toList.
	list list
	// repeats reports whether the route of a toCreate honours an Idempotency-Key.
	repeats bool
}

// headerNode names the node for requests about a node itself.
const headerNode = "Forkd-Node"

// Headers that name the sandbox and the port of a request: E2B's, and those of agent-sandbox's router.
const (
	headerE2BSandbox    = "E2b-Sandbox-Id"
	headerE2BPort       = "E2b-Sandbox-Port"
	headerRouterSandbox = "X-Sandbox-Id"
	headerRouterPort    = "X-Sandbox-Port"
	// routerPort is the port without a header, as in agent-sandbox's router.
	routerPort = "8888"
)

// targetOf classifies a request. It decides nothing about access: the node checks everything again.
func targetOf(r *http.Request, domain string) target {
	if id := r.Header.Get(headerE2BSandbox); id != "" {
		return target{kind: toSandbox, id: fullID(id), port: true}
	}
	if id := fullID(r.Header.Get(headerRouterSandbox)); sandbox.ValidID(id) {
		return target{kind: toSandbox, id: id, port: true}
	}
	if id := idOfHost(r.Host, domain); id != "" {
		return target{kind: toSandbox, id: id, port: true}
	}
	if r.Header.Get(headerNode) != "" {
		return target{kind: toNode}
	}
	parts := segments(r.URL)
	if parts[0] == "" || r.Method == http.MethodOptions {
		return target{}
	}
	switch parts[0] {
	case "v1":
		return native(r.Method, parts[1:])
	case "metrics":
		return target{kind: toNode}
	}
	return e2b(r.Method, parts)
}

// segments returns the unescaped parts of a path, at least one.
func segments(u *url.URL) []string {
	var parts []string
	for _, p := range strings.Split(strings.Trim(u.EscapedPath(), "/"), "/") {
		s, err := url.PathUnescape(p)
		if err != nil {
			return []string{""}
		}
		parts = append(parts, s)
	}
	return parts
}

// native classifies the routes of the native API, without /v1.
func native(method string, p []string) target {
	if len(p) == 0 {
		return target{}
	}
	get, alone := method == http.MethodGet, len(p) == 1
	switch p[0] {
	case "sandboxes":
		switch {
		case alone && method == http.MethodPost:
			return target{kind: toFork}
		case alone && get:
			return target{kind: toList, list: bySandbox}
		case alone:
			return target{}
		case p[1] == "keep":
			return target{kind: toKeep}
		}
		return ofSandbox(method, p)
	case "snapshots", "images":
		return objects(method, p)
	case "workspaces":
		switch {
		case alone && method == http.MethodPost:
			return target{kind: toWorkspace}
		case alone && get:
			return target{kind: toList, list: byName}
		case alone:
			return target{}
		}
		return target{kind: toObject, probe: "/v1/workspaces/" + url.PathEscape(p[1])}
	case "pools":
		return target{kind: toList, list: byTag}
	case "receipts":
		return target{kind: toList, list: newestReceipt}
	case "events":
		return target{kind: toEvents}
	case "capacity", "node", "drain", "audit", "keys", "secrets", "tenants", "store", "volumes", "networks":
		return target{kind: toNode}
	}
	return target{}
}

// ofSandbox classifies a route below /sandboxes/ID of either API.
func ofSandbox(method string, p []string) target {
	resumes := method == http.MethodPost && len(p) == 3 && (p[2] == "resume" || p[2] == "connect")
	return target{kind: toSandbox, id: fullID(p[1]), resumes: resumes,
		guest: len(p) > 2 && slices.Contains(guestRoutes, p[2])}
}

// objects classifies the routes of snapshots and images.
func objects(method string, p []string) target {
	images := p[0] == "images"
	switch {
	case len(p) == 1 && method == http.MethodPost, len(p) == 2 && method == http.MethodPut:
		return target{kind: toMake}
	case len(p) == 1 && method == http.MethodGet && images:
		return target{kind: toList, list: oncePerName}
	case len(p) == 1 && method == http.MethodGet:
		return target{kind: toList, list: oncePerTag}
	case len(p) == 1:
		return target{}
	case images:
		return target{kind: toObject, probe: "/v1/images/" + url.PathEscape(p[1])}
	}
	t := target{kind: toObject, tag: p[1], probe: infoOf(p[1])}
	if len(p) == 4 && p[2] == "diff" {
		t.other = p[3]
	}
	return t
}

// infoOf returns the path of a snapshot's description.
func infoOf(tag string) string { return "/v1/snapshots/" + url.PathEscape(tag) + "/info" }

// e2b classifies the routes of E2B's API.
func e2b(method string, p []string) target {
	v2 := p[0] == "v2"
	if v2 || p[0] == "v3" {
		p = p[1:]
	}
	if len(p) == 0 {
		return target{}
	}
	get, alone := method == http.MethodGet, len(p) == 1
	switch p[0] {
	case "sandboxes":
		switch {
		case alone && method == http.MethodPost:
			return target{kind: toCreate, repeats: v2}
		case alone && get && v2:
			return target{kind: toPages}
		case alone && get:
			return target{kind: toList, list: unordered}
		case alone || p[1] == "metrics":
			return target{}
		}
		return ofSandbox(method, p)
	case "snapshots":
		if alone && get {
			return target{kind: toPages}
		}
	case "templates":
		switch {
		case alone && get:
			return target{kind: toList, list: unordered}
		case len(p) > 1 && p[1] != "tags":
			return target{kind: toObject, probe: "/templates/" + url.PathEscape(p[1])}
		}
	}
	return target{}
}

// numbered matches the first label of a host name of a port.
var numbered = regexp.MustCompile(`^[0-9]+-(.+)$`)

// idOfHost returns the sandbox in a host name, PORT-ID.DOMAIN, or an empty string.
func idOfHost(host, domain string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	label, rest, dotted := strings.Cut(strings.ToLower(strings.TrimSuffix(name, ".")), ".")
	m := numbered.FindStringSubmatch(label)
	if !dotted || m == nil {
		return ""
	}
	if id := fullID(m[1]); rest == domain || sandbox.ValidID(id) {
		return id
	}
	return ""
}

// fullID returns an id with its dashes. E2B's older clients append another id to the sandbox's.
func fullID(shown string) string {
	if sandbox.ValidID(shown) {
		return shown
	}
	if id := sandbox.CanonicalID(shown); id != shown {
		return id
	}
	first, _, more := strings.Cut(shown, "-")
	if id := sandbox.CanonicalID(first); more && id != first {
		return id
	}
	return shown
}
