package auditing

import (
	"net/http"
	"strings"

	"github.com/forkd/forkd/internal/api/requestinfo"
)

// action is the audit log's name for a request.
type action struct {
	name string
	read bool // it changes nothing
	file bool // its object is a file in the guest, named in the query
}

// object returns the object of a request, if no other field of its audit line has it.
func (a action) object(r *http.Request) string {
	if !a.file {
		return ""
	}
	return r.URL.Query().Get("path")
}

// changes returns the names of all changing routes, by method and path. A test compares the table
// with the routes. Read-only routes get their name from areaOf.
func changes() map[string]action {
	return map[string]action{
		"POST /v1/snapshots":                           {name: "snapshot.create"},
		"DELETE /v1/snapshots/{tag}":                   {name: "snapshot.delete"},
		"POST /v1/snapshots/{tag}/verify":              {name: "snapshot.verify"},
		"POST /v1/snapshots/{tag}/compact":             {name: "snapshot.compact"},
		"POST /v1/snapshots/{tag}/rename":              {name: "snapshot.rename"},
		"GET /v1/snapshots/{tag}/export":               {name: "snapshot.export"},
		"PUT /v1/snapshots/{tag}":                      {name: "snapshot.import"},
		"POST /v1/snapshots/{tag}/copy":                {name: "snapshot.copy"},
		"GET /v1/snapshots/{tag}/artifact":             {name: "snapshot.serve"},
		"PUT /v1/snapshots/{tag}/pool":                 {name: "pool.set"},
		"PUT /v1/snapshots/{tag}/public":               {name: "snapshot.publish"},
		"POST /v1/store/gc":                            {name: "store.gc"},
		"PUT /v1/images/{name}":                        {name: "image.import"},
		"DELETE /v1/images/{name}":                     {name: "image.delete"},
		"POST /v1/sandboxes":                           {name: "sandbox.fork"},
		"POST /v1/sandboxes/keep":                      {name: "sandbox.keep"},
		"DELETE /v1/sandboxes/{id}":                    {name: "sandbox.kill"},
		"POST /v1/sandboxes/{id}/branch":               {name: "sandbox.branch"},
		"POST /v1/sandboxes/{id}/rollback":             {name: "sandbox.rollback"},
		"POST /v1/sandboxes/{id}/promote":              {name: "sandbox.promote"},
		"POST /v1/sandboxes/{id}/merge":                {name: "sandbox.merge"},
		"POST /v1/sandboxes/{id}/pause":                {name: "sandbox.pause"},
		"POST /v1/sandboxes/{id}/resume":               {name: "sandbox.resume"},
		"POST /v1/sandboxes/{id}/handover":             {name: "sandbox.handover"},
		"PATCH /v1/sandboxes/{id}/life":                {name: "sandbox.life"},
		"PATCH /v1/sandboxes/{id}/labels":              {name: "sandbox.label"},
		"PATCH /v1/snapshots/{tag}/labels":             {name: "snapshot.label"},
		"POST /v1/store/prune":                         {name: "snapshot.prune"},
		"POST /v1/sandboxes/{id}/ping":                 {name: "sandbox.ping", read: true},
		"POST /v1/sandboxes/{id}/exec":                 {name: "sandbox.exec"},
		"POST /v1/sandboxes/{id}/eval":                 {name: "sandbox.eval"},
		"PUT /v1/sandboxes/{id}/services/{service}":    {name: "service.declare"},
		"POST /v1/sandboxes/{id}/services/{service}":   {name: "service.change"},
		"DELETE /v1/sandboxes/{id}/services/{service}": {name: "service.remove"},
		"PUT /v1/sandboxes/{id}/network":               {name: "network.set"},
		"GET /v1/sandboxes/{id}/ports/{port}/connect":  {name: "port.connect"},
		"POST /v1/sandboxes/{id}/ports/{port}/connect": {name: "port.connect"},
		"GET /v1/sandboxes/{id}/agent/{path}":          {name: "agent.request", read: true},
		"POST /v1/sandboxes/{id}/agent/{path}":         {name: "agent.request"},
		"POST /v1/workspaces":                          {name: "workspace.create"},
		"DELETE /v1/workspaces/{workspace}":            {name: "workspace.delete"},
		"POST /v1/workspaces/{workspace}/suspend":      {name: "workspace.suspend"},
		"POST /v1/workspaces/{workspace}/resume":       {name: "workspace.resume"},
		"POST /v1/keys":                                {name: "key.create"},
		"DELETE /v1/keys/{key}":                        {name: "key.revoke"},
		"POST /v1/keys/{key}/rotate":                   {name: "key.rotate"},
		"PUT /v1/secrets/{secret}":                     {name: "secret.set"},
		"DELETE /v1/secrets/{secret}":                  {name: "secret.remove"},
		"POST /v1/volumes":                             {name: "volume.create"},
		"DELETE /v1/volumes/{volume}":                  {name: "volume.remove"},
		"POST /v1/volumes/{volume}/snapshot":           {name: "volume.snapshot"},
		"POST /v1/networks":                            {name: "network.create"},
		"DELETE /v1/networks/{network}":                {name: "network.remove"},
		"POST /v1/networks/{network}/fork":             {name: "network.fork"},
		"POST /v1/drain":                               {name: "drain.start"},
		"DELETE /v1/drain":                             {name: "drain.cancel"},
		"PUT /v1/tenants/{tenant}":                     {name: "tenant.set"},
		requestinfo.IngressRoute:                       {name: "port.request"},
	}
}

// Named reports whether a changing route, by method and path, has a name.
func Named(route string) bool {
	_, named := changes()[route]
	return named
}

// agentActions returns the names of the agent's changing routes, by path. All other requests to the
// agent are agent.request.
func agentActions() map[string]action {
	return map[string]action{
		"POST files":                                  {name: "file.write", file: true},
		"GET files":                                   {name: "file.read", file: true, read: true},
		"POST files/link":                             {name: "file.write", file: true},
		"POST filesystem.Filesystem/MakeDir":          {name: "file.write"},
		"POST filesystem.Filesystem/Move":             {name: "file.write"},
		"POST filesystem.Filesystem/Remove":           {name: "file.remove"},
		"POST filesystem.Filesystem/Stat":             {name: "file.read", read: true},
		"POST filesystem.Filesystem/ListDir":          {name: "file.read", read: true},
		"POST filesystem.Filesystem/WatchDir":         {name: "file.read", read: true},
		"POST filesystem.Filesystem/CreateWatcher":    {name: "file.read", read: true},
		"POST filesystem.Filesystem/GetWatcherEvents": {name: "file.read", read: true},
		"POST filesystem.Filesystem/RemoveWatcher":    {name: "file.read", read: true},
		"POST process.Process/Start":                  {name: "process.start"},
		"POST process.Process/Connect":                {name: "process.read", read: true},
		"POST process.Process/List":                   {name: "process.read", read: true},
		"POST process.Process/Update":                 {name: "process.input"},
		"POST process.Process/StreamInput":            {name: "process.input"},
		"POST process.Process/SendInput":              {name: "process.input"},
		"POST process.Process/CloseStdin":             {name: "process.input"},
		"POST process.Process/SendSignal":             {name: "process.signal"},
		"POST forkd.agent.v1.Agent/Ping":              {name: "sandbox.ping", read: true},
		"POST forkd.agent.v1.Agent/Eval":              {name: "sandbox.eval"},
	}
}

// agentPattern begins the pattern of the agent's route, which has no method.
const agentPattern = "/v1/sandboxes/{id}/agent/"

// actionOf returns the action of a request, even if the request was refused before it reached a
// route.
func (rec *Recorder) actionOf(r *http.Request) action {
	pattern := r.Pattern
	if pattern == "" {
		_, pattern = rec.mux.Handler(r)
	}
	if strings.HasPrefix(pattern, agentPattern) {
		_, path, _ := strings.Cut(r.URL.Path, "/agent/")
		return rec.agentAction(r.Method, path)
	}
	if a, ok := rec.acts[pattern]; ok {
		return a
	}
	switch {
	case pattern == "":
		return action{name: "none", read: true} // without a route it had no effect
	case !reads(r.Method):
		return action{name: "api.change"}
	}
	return action{name: areaOf(pattern) + ".read", read: true}
}

// agentAction returns the action of a request to a sandbox's agent.
func (rec *Recorder) agentAction(method, path string) action {
	if a, ok := rec.agentActs[method+" "+path]; ok {
		return a
	}
	return action{name: "agent.request", read: reads(method)}
}

func reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// areaOf returns the subject of a read-only route.
func areaOf(pattern string) string {
	_, path, _ := strings.Cut(pattern, " ")
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/v1/"), "/")
	switch first {
	case "sandboxes":
		return "sandbox"
	case "snapshots", "images", "pools", "receipts", "keys", "events", "workspaces", "secrets", "volumes",
		"networks":
		return strings.TrimSuffix(first, "s")
	case "audit":
		return first
	}
	return "daemon"
}
