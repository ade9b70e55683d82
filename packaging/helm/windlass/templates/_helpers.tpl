{{- define "windlass.name" -}}
{{ .Release.Name | trunc 45 | trimSuffix "-" }}
{{- end }}

{{- define "windlass.labels" -}}
app.kubernetes.io/name: windlass
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "windlass.allLabels" -}}
{{ include "windlass.labels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The secret with the URL of the store. */}}
{{- define "windlass.storeSecret" -}}
{{- if .Values.store.existingSecret -}}
{{ .Values.store.existingSecret }}
{{- else if .Values.store.trial.enabled -}}
{{ include "windlass.name" . }}-postgres
{{- else -}}
{{ fail "name the secret with the URL of a PostgreSQL database (store.existingSecret), or set store.trial.enabled for a trial" }}
{{- end -}}
{{- end }}

{{/* Every name of the service and of its pods. */}}
{{- define "windlass.hosts" -}}
{{- $name := include "windlass.name" . -}}
{{- $hosts := list -}}
{{- range $end := list "" (printf ".%s" .Release.Namespace) (printf ".%s.svc" .Release.Namespace) (printf ".%s.svc.cluster.local" .Release.Namespace) -}}
{{- $hosts = append $hosts (printf "%s%s" $name $end) -}}
{{- range $pod := until (int $.Values.replicas) -}}
{{- $hosts = append $hosts (printf "%s-%d.%s-daemons%s" $name $pod $name $end) -}}
{{- end -}}
{{- end -}}
{{ concat $hosts .Values.hosts | join "," }}
{{- end }}

{{/* The rights of a container. */}}
{{- define "windlass.closed" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: {{ ternary "Unconfined" "RuntimeDefault" .Values.cells }}
{{- end }}
