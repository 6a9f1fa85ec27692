{{/* What a holder is told, all of it in variables; see `pgsemaphore serve --help`. */}}
{{- define "pgsemaphore.holderEnv" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: PGSEMAPHORE_LISTEN
  value: "{{ ternary "[::]" "0.0.0.0" .Values.ipv6 }}:{{ .Values.containerPort }}"
{{- with include "pgsemaphore.advertiseUrl" . }}
- name: PGSEMAPHORE_ADVERTISE_URL
  value: {{ . | quote }}
{{- end }}
{{ include "pgsemaphore.databaseEnv" (dict "root" . "direct" false) }}
- name: PGSEMAPHORE_DATABASE_CONNECTIONS
  value: {{ .Values.database.connections | quote }}
{{- if .Values.database.pooler }}
- name: PGSEMAPHORE_POOLER
  value: "true"
{{- end }}
{{- if .Values.insecure }}
- name: PGSEMAPHORE_INSECURE
  value: "true"
{{- end }}
{{- if .Values.auth.existingSecret }}
{{- range $scope, $key := .Values.auth.keys }}
{{- if $key }}
- name: PGSEMAPHORE_{{ upper $scope }}_TOKEN_FILE
  value: /etc/pgsemaphore/tokens/{{ $scope }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: PGSEMAPHORE_TLS_CERT
  value: /etc/pgsemaphore/tls/tls.crt
- name: PGSEMAPHORE_TLS_KEY
  value: /etc/pgsemaphore/tls/tls.key
{{- if .Values.tls.caKey }}
- name: PGSEMAPHORE_HOLDER_CA
  value: /etc/pgsemaphore/tls/ca.crt
{{- end }}
{{- if .Values.tls.clientCA.existingSecret }}
- name: PGSEMAPHORE_TLS_CLIENT_CA
  value: /etc/pgsemaphore/client-ca/ca.crt
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* With TLS it is a name, which only the pod itself can make of its address: see holderCommand. */}}
{{- define "pgsemaphore.advertiseUrl" -}}
{{- if .Values.holders.advertiseUrl }}
{{- .Values.holders.advertiseUrl }}
{{- else if not .Values.tls.existingSecret }}
{{- printf "http://%s:%v" (ternary "[$(POD_IP)]" "$(POD_IP)" .Values.ipv6) .Values.containerPort }}
{{- end }}
{{- end }}

{{- define "pgsemaphore.holderCommand" -}}
{{- if include "pgsemaphore.advertiseUrl" . -}}
args: [serve]
{{- else -}}
# A certificate can be for all names below the headless Service, but not for addresses that nobody knows before. The
# cluster's DNS answers for 10-1-2-3.SERVICE with 10.1.2.3.
command: [sh, -c]
args:
  - >-
    export PGSEMAPHORE_ADVERTISE_URL="https://$(echo "$POD_IP" | tr .: -).{{ include "pgsemaphore.fullname" . }}-holders.$NAMESPACE.svc:{{ .Values.containerPort }}";
    exec pgsemaphore serve
{{- end }}
{{- end }}

{{- define "pgsemaphore.holderVolumes" -}}
{{ include "pgsemaphore.databaseVolumes" (dict "root" . "direct" false) }}
{{- if .Values.auth.existingSecret }}
{{- $items := dict }}
{{- range $scope, $key := .Values.auth.keys }}
{{- if $key }}{{ $_ := set $items $scope $key }}{{ end }}
{{- end }}
{{ include "pgsemaphore.secretVolume" (dict "name" "tokens" "secret" .Values.auth.existingSecret "items" $items) }}
{{- end }}
{{- with .Values.tls }}
{{- if .existingSecret }}
{{- $items := dict "tls.crt" .certKey "tls.key" .keyKey }}
{{- if .caKey }}{{ $_ := set $items "ca.crt" .caKey }}{{ end }}
{{ include "pgsemaphore.secretVolume" (dict "name" "tls" "secret" .existingSecret "items" $items) }}
{{- with .clientCA }}
{{- if .existingSecret }}
{{ include "pgsemaphore.secretVolume" (dict "name" "client-ca" "secret" .existingSecret "items" (dict "ca.crt" .key)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pgsemaphore.holderMounts" -}}
{{ include "pgsemaphore.databaseMounts" (dict "root" . "direct" false) }}
{{- if .Values.auth.existingSecret }}
{{ include "pgsemaphore.mount" "tokens" }}
{{- end }}
{{- if .Values.tls.existingSecret }}
{{ include "pgsemaphore.mount" "tls" }}
{{- if .Values.tls.clientCA.existingSecret }}
{{ include "pgsemaphore.mount" "client-ca" }}
{{- end }}
{{- end }}
{{- end }}

{{/* A probe: dict "root" "path" "settings". Open without token and certificate. */}}
{{- define "pgsemaphore.probe" -}}
httpGet: {path: {{ .path }}, port: http, scheme: {{ include "pgsemaphore.scheme" .root | upper }}}
{{ toYaml .settings }}
{{- end }}
