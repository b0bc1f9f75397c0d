# Starts IRkernel. An interrupt that comes while it is about its own work, and not about user code, would
# end it: it waits until there is code to interrupt, and is then forgotten, as it was meant for what had
# ended. Whoever wants an execution to end sends another.
local({
  imports <- parent.env(asNamespace("IRkernel"))
  evaluate <- evaluate::evaluate
  unlockBinding("evaluate", imports)
  assign("evaluate", envir = imports, function(input, envir = NULL, ...) {
    if (is.null(envir)) return(evaluate(input, ...)) # something of its own
    tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(condition) NULL)
    allowInterrupts(evaluate(input, envir = envir, ...))
  })
  suspendInterrupts(IRkernel::main())
})
