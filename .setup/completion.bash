# bash completion for nnlua: options, scripts, and settings, which come from a recipe's --help.
# shellcheck shell=bash

_nnlua() {
    local current=${COMP_WORDS[COMP_CWORD]} script='' word i
    # bash splits words at "=": a setting's name, "=" and value are separate words
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case $word in
        -e | -l | --ranks | --hosts) ((i++)) ;;
        -*) ;;
        *)
            script=$word
            break
            ;;
        esac
    done
    COMPREPLY=()
    if [ -z "$script" ]; then
        if [[ $current == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W '-e -i -l --ranks --hosts --doc --health --version --help --' -- "$current")
        else
            mapfile -t COMPREPLY < <(compgen -f -X '!*.lua' -- "$current"; compgen -d -S / -- "$current")
            compopt -o nospace 2>/dev/null
        fi
        return
    fi
    local before=${COMP_WORDS[COMP_CWORD - 1]} name=''
    [ "$current" = = ] && name=$before current=
    [ "$before" = = ] && name=${COMP_WORDS[COMP_CWORD - 2]}
    if [ "$name" = preset ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_nnlua_help "$script" | sed -n '/^presets/,/^$/s/^  \([^ ]*\) .*/\1/p')" -- "$current")
    elif [ -n "$name" ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -W "$(_nnlua_help "$script" | sed -n 's/^  \([a-z_0-9.]*=\).*/\1/p')" -- "$current")
        compopt -o nospace 2>/dev/null
    fi
}

_nnlua_help() { "${COMP_WORDS[0]}" "$1" --help 2>/dev/null; }

complete -F _nnlua nnlua ./nnlua
