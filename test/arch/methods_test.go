package arch

import (
	"go/ast"
	"testing"
)

// mostMethods is how many methods a type of the engine, or of its rooms, may offer to others: beyond
// it, it is several rooms in one. Those of embedded types are the embedded types'.
const mostMethods = 40

func TestNoRoomOffersTooMuch(t *testing.T) {
	methods := map[string]int{}
	for _, s := range sources(t) {
		if !isOneOf(s.pkg.name(), []string{"internal/engine"}) {
			continue
		}
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && fn.Name.IsExported() {
				methods[s.pkg.name()+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
	}
	for of, n := range methods {
		if n > mostMethods {
			t.Errorf("%s offers %d methods, want at most %d: which rooms are in it?", of, n, mostMethods)
		}
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}
