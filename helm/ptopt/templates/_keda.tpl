{{- /* The kinds of jobs of each queue: those of service.jobs.QUEUES. */ -}}
{{- define "ptopt.queues" -}}
review: [review, audit]
command: [command]
feedback: [closed, thread, reply, deleted, poll, installation]
{{- end -}}

{{- /* Scales by jobs that are due or running. Not by the queue on Redis: while a task runs it is not in the queue, and a worker at
work would be scaled to zero; nor are jobs that wait for others of their installation. */ -}}
{{- define "ptopt.scaledObject" -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ include "ptopt.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "ptopt.labels" . | nindent 4 }}
spec:
  scaleTargetRef:
    name: {{ include "ptopt.fullname" .root }}-{{ .component }}
  pollingInterval: {{ .root.Values.keda.pollingInterval }}
  cooldownPeriod: {{ .cooldown }}
  minReplicaCount: {{ .min }}
  maxReplicaCount: {{ .max }}
  triggers:
    - type: postgresql
      metadata:
        query: >-
          SELECT count(*) FROM jobs WHERE kind IN ('{{ join "', '" .kinds }}')
          AND (state = 'running' OR (state = 'queued' AND due_at <= now()))
        targetQueryValue: {{ .jobs | quote }}
      authenticationRef:
        name: {{ include "ptopt.fullname" .root }}
{{- end -}}
