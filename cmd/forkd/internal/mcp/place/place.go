// Package place parses the URIs of the MCP server's resources: files, logs, outputs and the tree.
// The URIs come from MCP clients, and a model may have written them. The package does not read
// resources. The trap: a path in a URI is percent-encoded, and may contain any byte but zero.
package place

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/forkd/forkd/api"
)

// Kind is a kind of resource.
type Kind string

// The kinds of resources, with the URI of each.
const (
	Tree       Kind = "tree"        // forkd://tree
	File       Kind = "file"        // forkd://sandbox/ID/file/PATH
	Log        Kind = "log"         // forkd://sandbox/ID/log
	NetworkLog Kind = "network-log" // forkd://sandbox/ID/network-log
	Output     Kind = "output"      // forkd://output/NUMBER/STREAM
)

// Place is a parsed URI.
type Place struct {
	Kind    Kind
	Sandbox string // of File, Log and NetworkLog
	Path    string // of File: absolute and clean
	Number  int    // of Output
	Stream  string // of Output: stdout, stderr or result
	// Offset and Limit select a part, in bytes. A negative Offset counts from the end. Limit 0 is
	// the server's limit.
	Offset, Limit int64
}

const (
	scheme = "forkd"
	// maxURI limits a URI, in bytes. Linux paths have at most 4096 bytes, and three characters each.
	maxURI = 16 << 10
)

var validID = regexp.MustCompile(api.IDPattern)

// Parse parses a URI.
func Parse(uri string) (Place, error) {
	if len(uri) > maxURI {
		return Place{}, fmt.Errorf("the URI has %d bytes, want at most %d", len(uri), maxURI)
	}
	u, err := url.Parse(uri)
	if err != nil {
		return Place{}, errors.New("the URI cannot be parsed")
	}
	if u.Scheme != scheme || u.User != nil || u.Opaque != "" || u.Fragment != "" {
		return Place{}, fmt.Errorf("want a URI such as %s://sandbox/ID/file/PATH", scheme)
	}
	p, err := parsePath(u.Host, u.EscapedPath())
	if err != nil {
		return Place{}, err
	}
	return p, p.parsePart(u.RawQuery)
}

func parsePath(host, rest string) (Place, error) {
	switch host {
	case string(Tree):
		if rest == "" || rest == "/" {
			return Place{Kind: Tree}, nil
		}
	case "sandbox":
		id, rest, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		return parseSandbox(id, rest)
	case string(Output):
		number, stream, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		return parseOutput(number, stream)
	}
	return Place{}, errors.New("no resource has that URI")
}

func parseSandbox(id, rest string) (Place, error) {
	if !validID.MatchString(id) {
		return Place{}, errors.New("the URI has no valid sandbox ID")
	}
	what, file, isFile := strings.Cut(rest, "/")
	switch {
	case isFile && what == string(File):
		return parseFile(id, file)
	case rest == string(Log), rest == string(NetworkLog):
		return Place{Kind: Kind(rest), Sandbox: id}, nil
	}
	return Place{}, errors.New("no resource has that URI")
}

func parseFile(id, escaped string) (Place, error) {
	name, err := url.PathUnescape(escaped)
	if err != nil || strings.ContainsRune(name, 0) || !utf8.ValidString(name) {
		return Place{}, errors.New("the path in the URI is invalid")
	}
	name = path.Clean("/" + name)
	return Place{Kind: File, Sandbox: id, Path: name}, nil
}

func parseOutput(number, stream string) (Place, error) {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || strconv.Itoa(n) != number {
		return Place{}, errors.New("the URI has no valid number of an output")
	}
	if stream != "stdout" && stream != "stderr" && stream != "result" {
		return Place{}, errors.New("the URI has no valid stream: want stdout, stderr or result")
	}
	return Place{Kind: Output, Number: n, Stream: stream}, nil
}

// parsePart parses ?offset=N&limit=N.
func (p *Place) parsePart(query string) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("the query of the URI is invalid")
	}
	for name, values := range q {
		n, err := strconv.ParseInt(values[0], 10, 64)
		switch {
		case err != nil || len(values) != 1:
			return errors.New("want whole numbers in the query of the URI")
		case name == "offset":
			p.Offset = n
		case name == "limit" && n > 0:
			p.Limit = n
		default:
			return errors.New("want offset and limit in the query of the URI, with a limit above 0")
		}
	}
	return nil
}

// String returns the URI.
func (p Place) String() string {
	u := scheme + "://"
	switch p.Kind {
	case File:
		u += "sandbox/" + p.Sandbox + "/file" + (&url.URL{Path: p.Path}).EscapedPath()
	case Log, NetworkLog:
		u += "sandbox/" + p.Sandbox + "/" + string(p.Kind)
	case Output:
		u += "output/" + strconv.Itoa(p.Number) + "/" + p.Stream
	default:
		u += string(p.Kind)
	}
	return u + p.query()
}

func (p Place) query() string {
	q := url.Values{}
	if p.Offset != 0 {
		q.Set("offset", strconv.FormatInt(p.Offset, 10))
	}
	if p.Limit != 0 {
		q.Set("limit", strconv.FormatInt(p.Limit, 10))
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}
