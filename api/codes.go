package api

import "net/http"

// Code is the stable identifier of a kind of error. Programs branch on the code, not on the text.
type Code string

// Codes of daemons and gateways. `go generate ./api` repeats this group in internal/domain/sandbox.
const (
	CodeInternal     Code = "internal"
	CodeInvalid      Code = "invalid_request"
	CodeUnauthorized Code = "unauthorized"
	CodeForbidden    Code = "forbidden"
	CodeNotFound     Code = "not_found"
	CodeMethod       Code = "method_not_allowed"
	CodeConflict     Code = "conflict"
	CodeTooLarge     Code = "too_large"
	// CodeRequestTimeout concerns the request itself, CodeTimeout a guest.
	CodeRequestTimeout Code = "request_timeout"
	CodeMediaType      Code = "unsupported_media_type"
	CodeNotRestorable  Code = "not_restorable"
	CodeBootFailed     Code = "boot_failed"
	CodeGuestGone      Code = "guest_gone"
	CodePortClosed     Code = "port_closed"
	CodeTimeout        Code = "timeout"
	CodeNoSpace        Code = "no_space"
	CodeNoMemory       Code = "no_memory"
	CodeNoResources    Code = "no_resources"
	CodeBusy           Code = "busy"
	CodeQuota          Code = "quota_exceeded"
	CodeClosing        Code = "closing"
	CodeDraining       Code = "draining"
	CodeUnsupported    Code = "unsupported"
)

// Codes of the clients' own errors.
const (
	// CodeUnreachable is an error of the client: no daemon answered.
	CodeUnreachable Code = "unreachable"
	// CodeBroken is an error of the client: the daemon's answer was cut off. The daemon may have
	// done the request or not.
	CodeBroken Code = "connection_broken"
	// CodeInterrupted is an error of the CLI: the user pressed Ctrl-C.
	CodeInterrupted Code = "interrupted"
	// CodePartial is an error of the CLI: some children of a fork, or files of a copy, failed.
	CodePartial Code = "partial"
)

// CodeRow gives the HTTP status and the exit code of one code.
type CodeRow struct {
	Code    Code
	Status  int // of the HTTP response; 0 for codes of no response
	Exit    int // of the CLI
	Meaning string
}

// Codes returns the table from error codes to HTTP status and exit code. It is a function so that
// callers cannot change the table.
func Codes() []CodeRow {
	return []CodeRow{
		{CodeInternal, http.StatusInternalServerError, 1, "internal error of the daemon; see its log"},
		{CodeInvalid, http.StatusBadRequest, 2, "the request is invalid"},
		{CodeNotFound, http.StatusNotFound, 3, "no snapshot, sandbox or image has that name"},
		{CodeConflict, http.StatusConflict, 4, "the name is taken, or the object's state forbids it"},
		{CodeNotRestorable, http.StatusConflict, 5, "a snapshot's files are damaged, missing, or made for another CPU or format"},
		{CodeBootFailed, http.StatusInternalServerError, 6, "the guest did not boot; the text ends with the last lines of its console"},
		{CodeGuestGone, http.StatusBadGateway, 7, "the sandbox's VM has ended or does not answer"},
		{CodePortClosed, http.StatusBadGateway, 7, "the sandbox runs, but no server accepts connections on the port"},
		{CodeTimeout, http.StatusGatewayTimeout, 8, "the guest did not answer in time"},
		{CodeNoSpace, http.StatusInsufficientStorage, 9, "the store's file system is full; a sandbox in this state is paused until space is free"},
		{CodeNoMemory, http.StatusServiceUnavailable, 9, "the host has too little memory for another sandbox"},
		{CodeNoResources, http.StatusServiceUnavailable, 9, "the host has too few file descriptors or threads for another sandbox"},
		{CodeUnauthorized, http.StatusUnauthorized, 10, "the token is missing or wrong"},
		{CodeForbidden, http.StatusForbidden, 10, "the caller is not allowed to use the daemon, or a flag of the daemon disables the action"},
		{CodeUnreachable, 0, 10, "no daemon answers"},
		{CodeBroken, 0, 10, "the daemon's response was cut off; the request may or may not have taken effect"},
		{CodeClosing, http.StatusServiceUnavailable, 10, "the daemon is shutting down"},
		{CodeDraining, http.StatusServiceUnavailable, 12, "the daemon is being drained and takes no new sandboxes"},
		{CodeBusy, http.StatusServiceUnavailable, 12, "too many requests of this kind are in progress; retry after Retry-After seconds"},
		{CodeQuota, http.StatusTooManyRequests, 12, "a quota of the key is exhausted; retry after Retry-After seconds"},
		{CodeInterrupted, 0, 130, "interrupted"},
		{CodePartial, 0, 11, "some children could not be forked, or some files could not be copied"},
		{CodeMethod, http.StatusMethodNotAllowed, 1, "the path does not support the method"},
		{CodeTooLarge, http.StatusRequestEntityTooLarge, 2, "the request body is too large"},
		{CodeRequestTimeout, http.StatusRequestTimeout, 10, "the request took too long to arrive"},
		{CodeMediaType, http.StatusUnsupportedMediaType, 2, "the route does not accept the content type of the body"},
		{CodeUnsupported, http.StatusNotImplemented, 1, "the daemon or the host does not support the action"},
	}
}

func (c Code) row() CodeRow {
	rows := Codes()
	for _, r := range rows {
		if r.Code == c {
			return r
		}
	}
	return rows[0]
}

// Status returns the HTTP status that carries the code.
func (c Code) Status() int {
	if s := c.row().Status; s != 0 {
		return s
	}
	return http.StatusInternalServerError
}

// Exit returns the CLI's exit code for the code.
func (c Code) Exit() int { return c.row().Exit }

// CodeOf derives a code from the status of a response without a code, such as a proxy's.
func CodeOf(status int) Code {
	for _, r := range Codes() {
		if r.Status == status {
			return r.Code
		}
	}
	if status >= 400 && status < 500 {
		return CodeInvalid
	}
	return CodeInternal
}

// Error is the body of every response with a 4xx or 5xx status.
type Error struct {
	// Message is original, the other fields are ours. The client adds advice about the error,
	// because it knows its own commands.
	Message string            `json:"error" doc:"Text for people: the failed action and its object"`
	Code    Code              `json:"code" doc:"Stable identifier of the kind of error, for programs"`
	Reason  Reason            `json:"reason,omitempty" doc:"Refines the code if errors of one code need different advice; stable"`
	Details map[string]string `json:"details,omitempty" doc:"Names for the reason, such as a snapshot's tag"`
	// RequestID identifies the request in the daemon's log and in the audit log.
	RequestID string `json:"request_id,omitempty" doc:"ID of the request, as in the header Forkd-Request-Id, the daemon's log and the audit log"`
}

// HeaderRequestID carries the ID of a request in its answer.
const HeaderRequestID = "Forkd-Request-Id"

// HeaderTraceID carries the trace ID of a request with a valid traceparent in its answer.
const HeaderTraceID = "Forkd-Trace-Id"

// HeaderMovedTo is in answers about a sandbox that another daemon has taken: the name of that daemon's node. Gateways
// send the request there.
const HeaderMovedTo = "Forkd-Moved-To"

// HeaderPeers lists URLs of daemons that may have the paused sandbox of a resume in E2B's API, separated by commas, as
// Peers of ResumeRequest.
const HeaderPeers = "Forkd-Peers"

// HeaderError carries the code of an error of the daemon itself. On the agent route it
// distinguishes these errors from answers of the guest's agent.
const HeaderError = "Forkd-Error"
