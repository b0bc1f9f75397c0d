package mcp

import (
	"context"
	"mime"
	"path"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/mcp/place"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// maxResource limits the bytes of one answer to resources/read. A client reads the rest by offset.
const maxResource = 4 << 20

// templates are the resources with parameters. The URIs may have ?offset=N&limit=N at the end.
var templates = []sdk.ResourceTemplate{
	{
		Name: "file", Title: "File of a sandbox", URITemplate: "forkd://sandbox/{id}/file{+path}",
		Description: "A file of a sandbox. The path begins with /. Add ?offset=N&limit=N for a part.",
	},
	{
		Name: "log", Title: "Console of a sandbox", URITemplate: "forkd://sandbox/{id}/log", MIMEType: "text/plain",
		Description: "The last part of the console output of a sandbox's kernel and services.",
	},
	{
		Name: "network-log", Title: "Network log of a sandbox", URITemplate: "forkd://sandbox/{id}/network-log",
		MIMEType:    "application/jsonl",
		Description: "The connections that the network policy of a sandbox refused, one JSON object per line.",
	},
	{
		Name: "output", Title: "Whole output of a call", URITemplate: "forkd://output/{number}/{+stream}",
		Description: "An output that was cut in the answer to exec_command or eval_code, which names its URI. " +
			"Add ?offset=N&limit=N for a part. The session keeps the last outputs only.",
	},
}

// addResources adds the resources. All have one handler, which parses the URI itself.
func (s *Server) addResources(server *sdk.Server, of sessionOf) {
	read := func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		n := of(req.Session)
		ctx, done := n.during(ctx)
		defer done()
		return n.readResource(ctx, req.Params.URI)
	}
	server.AddResource(&sdk.Resource{
		Name: "tree", Title: "Fork tree", URI: place.Place{Kind: place.Tree}.String(), MIMEType: "text/plain",
		Description: "Which snapshots and sandboxes came of which.",
	}, read)
	for i := range templates {
		server.AddResourceTemplate(&templates[i], read)
	}
}

func (n *session) readResource(ctx context.Context, uri string) (*sdk.ReadResourceResult, error) {
	p, err := place.Parse(uri)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	data, kind, err := n.load(ctx, p)
	if err != nil {
		if client.IsNotFound(err) {
			return nil, sdk.ResourceNotFoundError(uri)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: failureOf(err).Error()}
	}
	c := &sdk.ResourceContents{URI: uri, MIMEType: kind}
	if len(data) > 0 && utf8.Valid(data) {
		c.Text = string(data)
	} else {
		c.Blob = append([]byte{}, data...) // not nil: the SDK leaves out an empty text, and clients want one of both
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
}

// load returns the bytes of a resource and their type.
func (n *session) load(ctx context.Context, p place.Place) ([]byte, string, error) {
	if p.Kind == place.Output {
		b, ok := n.outputs.read(p.Number, p.Stream)
		if !ok {
			return nil, "", notKept(p)
		}
		return partOf(b, p), "text/plain", nil
	}
	c, err := n.client(ctx)
	if err != nil {
		return nil, "", err
	}
	switch p.Kind {
	case place.File:
		part, err := client.Files{Client: c}.DownloadPart(ctx, p.Sandbox, p.Path, "", p.Offset, limitOf(p))
		return part.Data, mime.TypeByExtension(path.Ext(p.Path)), err
	case place.Log:
		text, err := logs(ctx, c, p.Sandbox)
		return partOf([]byte(ui.CleanLines(text)), p), "text/plain", err
	case place.NetworkLog:
		b, err := networkLog(ctx, c, p.Sandbox)
		return partOf(b, p), "application/jsonl", err
	}
	text, err := forkTree(ctx, c)
	return partOf([]byte(text), p), "text/plain", err
}

// startLog is the guest's file with the output of its recipe's start command
// (docs/inside/formats/recipe.md).
const startLog = "/tmp/forkd-start.log"

// logs returns the console, and the last part of the start command's output if there is any. A guest
// that hangs still has a console.
func logs(ctx context.Context, c *client.Client, id string) (string, error) {
	text, err := c.Console(ctx, id)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	start, err := client.Files{Client: c}.DownloadPart(ctx, id, startLog, "root", -(1 << 20), 1<<20)
	if err != nil || len(start.Data) == 0 {
		return text, nil
	}
	return "==> console <==\n" + text + "\n==> start command <==\n" + string(start.Data), nil
}

// networkLog returns the last lines of a network log, at most maxResource bytes.
func networkLog(ctx context.Context, c *client.Client, id string) ([]byte, error) {
	var lines [][]byte
	size := 0
	err := c.NetworkLog(ctx, id, false, func(line []byte) error {
		lines = append(lines, append(append([]byte(nil), line...), '\n'))
		for size += len(line) + 1; size > maxResource && len(lines) > 1; lines = lines[1:] {
			size -= len(lines[0])
		}
		return nil
	})
	var out []byte
	for _, l := range lines {
		out = append(out, l...)
	}
	return out, err
}

func limitOf(p place.Place) int64 {
	if p.Limit > 0 && p.Limit < maxResource {
		return p.Limit
	}
	return maxResource
}

// partOf returns the part of b that the URI asks for.
func partOf(b []byte, p place.Place) []byte {
	begin := p.Offset
	if begin < 0 {
		begin = max(0, int64(len(b))+begin)
	}
	begin = min(begin, int64(len(b)))
	return b[begin:min(int64(len(b)), begin+limitOf(p))]
}
