package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

// readsGuests are packages that read what a guest's agent says.
var readsGuests = []string{"internal/engine", "internal/api/httpapi", "internal/api/routes", "internal/api/wire", "internal/api/guestproxy", "internal/api/e2bapi", "internal/images/image",
	"internal/guest/agentproto/agentclient", "internal/guest/execclient", "internal/guest/guestdiff", "internal/net/netd", "internal/api/ingress"}

// guestWords are accessors of an agent's messages, and of Connect's errors, that return text for people.
var guestWords = []string{"GetError", "GetRefused", "GetMessage", "GetTraceback", "Message"}

// guestFields may be in an error or a log only as a Text.
var guestFields = []string{"Stdout", "Stderr", "GetName", "GetOutput", "GetLanguage", "GetStatus", "GetHostname"}

// formats are functions that make text.
var formats = []string{"Errorf", "Sprintf", "Fprintf", "New", "Sprint"}

// guestWordsAsData are files in which such a text is data, with the reason.
var guestWordsAsData = map[string]string{
	"internal/engine/guest/calls.go":     "what an evaluation raised is its result",
	"internal/engine/op/receipts.go":     "package receipt bounds all texts of a receipt",
	"internal/images/image/recipe.go":    "a parser's token: the recipe is the caller's",
	"internal/guest/execclient/order.go": "the length of a status is checked, its text is not shown",
}

// isText reports whether a call makes a guest's words safe to show.
func isText(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	if fn, ok := call.Fun.(*ast.Ident); ok {
		return fn.Name == "said"
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := sel.X.(*ast.Ident)
	return ok && from.Name == "guesttext"
}

// called returns the name of a method that is called without arguments.
func called(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return ""
	}
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		return sel.Sel.Name
	}
	return ""
}

// unsafeWords returns the nodes below one that bad matches, except in calls that make a Text and in comparisons.
func unsafeWords(root ast.Node, bad func(ast.Node) string) (found map[ast.Node]string) {
	found = map[ast.Node]string{}
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil || isText(n) {
			return false
		}
		if b, ok := n.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
			return false
		}
		if name := bad(n); name != "" {
			found[n] = name
		}
		return true
	})
	return found
}

// fieldOf returns the name if a node reads a field or calls an accessor of guestFields, or reads resp.Status.
func fieldOf(n ast.Node) string {
	if name := called(n); slices.Contains(guestFields, name) {
		return name
	}
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if from, isIdent := sel.X.(*ast.Ident); isIdent && from.Name == "resp" && sel.Sel.Name == "Status" {
		return "resp.Status"
	}
	if sel.Sel.Name == "Stdout" || sel.Sel.Name == "Stderr" {
		return sel.Sel.Name
	}
	return ""
}

// A guest's words become text in one way, package guesttext: clipped, and without control characters.
func TestGuestsWordsAreMadeText(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if !isOneOf(s.pkg.name(), readsGuests) {
			continue
		}
		file := s.pkg.name() + "/" + s.name
		words := unsafeWords(s.file, func(n ast.Node) string {
			if name := called(n); slices.Contains(guestWords, name) {
				return name
			}
			return ""
		})
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(formats, sel.Sel.Name) {
				for _, arg := range call.Args {
					for at, name := range unsafeWords(arg, fieldOf) {
						words[at] = name
					}
				}
			}
			return true
		})
		for at, name := range words {
			if guestWordsAsData[file] != "" {
				used[file] = true
				continue
			}
			t.Errorf("%s:%d: %s is a guest's: make it text with package guesttext, or name the file and the reason here",
				file, s.fset.Position(at.Pos()).Line, name)
		}
	}
	for file := range guestWordsAsData {
		if !used[file] {
			t.Errorf("%s has no such text any more", file)
		}
	}
}

// noWords are methods of the agent's client whose errors have no word of a guest.
var noWords = []string{"Close"}

// Each call of the agent's client returns errors that were made safe to show.
func TestTheAgentsClientReturnsText(t *testing.T) {
	methods := 0
	for _, s := range sources(t) {
		if s.pkg.name() != "internal/guest/agentproto/agentclient" {
			continue
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !isClientCall(fn) || slices.Contains(noWords, fn.Name.Name) {
				continue
			}
			methods++
			safe := false
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					name, isIdent := call.Fun.(*ast.Ident)
					safe = safe || isText(n) || isIdent && name.Name == "answer"
				}
				return true
			})
			if !safe {
				t.Errorf("%s returns an agent's error as it is: wrap it with said", fn.Name.Name)
			}
		}
	}
	if methods < 8 {
		t.Errorf("the agent's client has %d calls: is it another package now?", methods)
	}
}

// isClientCall reports whether a function is an exported method of Client that returns an error.
func isClientCall(fn *ast.FuncDecl) bool {
	if fn.Recv == nil || !fn.Name.IsExported() || fn.Type.Results == nil {
		return false
	}
	star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	of, ok := star.X.(*ast.Ident)
	last := fn.Type.Results.List[len(fn.Type.Results.List)-1]
	result, isIdent := last.Type.(*ast.Ident)
	return ok && of.Name == "Client" && isIdent && result.Name == "error"
}
