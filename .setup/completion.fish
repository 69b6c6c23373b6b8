# fish completion for nnlua. lua/completion.lua says what to offer.

function __nnlua_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l words $current $before[2..-1]
    set -l lines (NNLUA_COMPLETE=(string join \n -- $words | string collect) $before[1] -l completion 2>/dev/null)
    string join \n -- $lines[2..-1]
    switch "$lines[1]"
        case scripts
            string match -r -- '.*(?:\.lua|/)(?:\t.*)?$' (__fish_complete_suffix .lua)
        case files
            set -l name (string replace -r '=.*' '=' -- $current)
            string join \n -- $name(__fish_complete_path (string replace -r '^[^=]*=' '' -- $current))
    end
end

complete -c nnlua -f -a '(__nnlua_complete)'
